"""The results, for machines."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from notification_bus.cli._command import CommandError
from notification_bus.cli.check._suite import Report
from notification_bus.testing import Result

__all__ = ["print_json", "write_junit"]

_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML has no way to say."""


def print_json(report: Report) -> None:
    """One object. A result with the same id stands there once for each library, and in a stress run for each copy."""
    counts = report.counts
    print(  # noqa: T201  # this is a program
        json.dumps(
            {
                "target": report.target,
                "header": asdict(report.header),
                "notes": list(report.notes),
                "backends": list(report.backends),
                "strict": report.options.strict,
                "stress": report.options.stress,
                "results": [
                    {
                        "id": result.id,
                        "backend": result.backend,
                        "outcome": result.outcome,
                        "reason": result.reason,
                        "seconds": round(result.seconds, 3),
                    }
                    for result in report.results
                ],
                "counts": {
                    name: counts[name] for name in ("passed", "failed", "not_declared", "untestable", "known_failure")
                },
                "red": list(dict.fromkeys(result.id for result in report.red)),
                "seconds": round(report.seconds, 3),
            },
            indent=2,
        )
    )


def write_junit(report: Report, path: Path) -> None:
    """JUnit's XML, as CI servers read it: a suite for each async library, a case for each result.

    Raises:
        CommandError: It cannot be written.
    """
    suites = ET.Element("testsuites", name=f"notification-bus check {report.target}", time=f"{report.seconds:.3f}")
    for backend in dict.fromkeys(result.backend for result in report.results):
        results = [result for result in report.results if result.backend == backend]
        red = sum(map(report.is_red, results))
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=f"contract on {backend}",
            tests=str(len(results)),
            failures=str(red),
            errors="0",
            skipped=str(sum(result.outcome != "passed" for result in results) - red),
            time=f"{sum(result.seconds for result in results):.3f}",
        )
        properties = ET.SubElement(suite, "properties")
        for line in (*report.header.lines(), *(f"note: {note}" for note in report.notes)):
            name, _, value = line.partition(": ")
            ET.SubElement(properties, "property", name=name, value=_xml(value))
        for result in results:
            _add_case(suite, report, result)
    tree = ET.ElementTree(suites)
    ET.indent(tree)
    try:
        tree.write(path, encoding="utf-8", xml_declaration=True)
    except OSError as exc:
        raise CommandError(f"--junit {path}: {exc.strerror or exc}") from exc


def _add_case(suite: ET.Element, report: Report, result: Result) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"notification_bus.contract.{result.backend}",
        name=result.id,
        time=f"{result.seconds:.3f}",
    )
    if result.outcome == "passed":
        return
    first, _, _ = result.reason.partition("\n")
    message = _xml(first if report.is_red(result) else f"{result.outcome.replace('_', ' ')}: {first}")
    about = ET.SubElement(case, "failure" if report.is_red(result) else "skipped", message=message, type=result.outcome)
    about.text = _xml("\n".join(filter(None, (result.reason, result.detail))))


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
