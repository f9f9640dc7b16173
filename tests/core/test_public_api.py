"""The public surface: what is exported, documented, typed, and what importing it drags in."""

import ast
import importlib
import inspect
import json
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import notification_bus
from notification_bus import NotificationBusError, NotificationTooLargeError, errors

ROOT = Path(notification_bus.__file__).parent
ADAPTERS = ("notification_bus_redis", "notification_bus_nats", "notification_bus_postgres")
CORE_FOLDERS = {
    "": {"_broker"},
    "_broker": {""},
    "subscriptions": {""},
    "mcp": {"", "subscriptions"},
    "testing": {"", "subscriptions"},
    "cli": {"", "subscriptions", "mcp", "testing"},
}
"""Which parts of core each part may import: one way only."""


def _is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def _modules() -> Iterator[str]:
    """The modules that users may import. What lies below the kit and the command is theirs alone, and tested there."""
    yield "notification_bus"
    for info in pkgutil.walk_packages([str(ROOT)], "notification_bus."):
        if _is_public(info.name) and not info.name.startswith(("notification_bus.testing.", "notification_bus.cli.")):
            yield info.name


MODULES = sorted(_modules())
SURFACES = ["notification_bus", "notification_bus.subscriptions", "notification_bus.mcp"]
SHARED_INSIDE = {
    "notification_bus.stats": {"Counters"},
    "notification_bus.subscriptions.stream": {"Admitted"},
}
"""Names without an underscore that modules of this package share, and that are no promise to users."""


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _source(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__)


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module defines itself at its top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def _documented_assignments(tree: ast.Module) -> set[str]:
    """The names of constants and aliases with a string behind them."""
    names: set[str] = set()
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_exports_what_it_defines_and_nothing_else(name: str) -> None:
    module = importlib.import_module(name)
    exported: list[str] = module.__all__
    assert list(exported) == sorted(set(exported), key=lambda n: (not n.isupper(), not n[0].isupper(), n)), "sort it"
    missing = [one for one in exported if not hasattr(module, one)]
    assert missing == []
    assert all(map(_is_public, exported))
    defined = {one for one in _defined(_tree(_source(module))) if _is_public(one)}
    assert defined - set(exported) == SHARED_INSIDE.get(name, set()), (
        "public by its name and not exported: export it, or underscore it"
    )
    if _source(module).name != "__init__.py":
        assert sorted(set(exported) - defined) == [], "re-exports belong into a package's __init__"


@pytest.mark.parametrize("name", MODULES)
def test_every_exported_name_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    documented = _documented_assignments(_tree(_source(module)))
    bare: list[str] = []
    for one in module.__all__:
        thing = getattr(module, one)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            text = thing.__doc__ or ""
            # A dataclass without a docstring gets its signature for one.
            if not text or text.startswith(f"{thing.__name__}("):
                bare.append(one)
        elif one in _defined(_tree(_source(module))) and one not in documented:
            bare.append(one)
    assert bare == []


@pytest.mark.parametrize("name", SURFACES)
def test_every_public_method_of_what_users_import_is_documented(name: str) -> None:
    package = importlib.import_module(name)
    bare: list[str] = []
    for one in package.__all__:
        thing = getattr(package, one)
        if not inspect.isclass(thing) or not thing.__module__.startswith("notification_bus"):
            continue
        for member, value in vars(thing).items():
            function: object = getattr(value, "__func__", value)
            if member.startswith("_") or not (inspect.isfunction(function) or isinstance(function, property)):
                continue
            if not any(inspect.getdoc(getattr(base, member, None)) for base in thing.__mro__):
                bare.append(f"{one}.{member}")
    assert bare == []


def test_the_version_is_that_of_the_distribution_and_other_names_are_unknown() -> None:
    assert notification_bus.__version__ == version("notification-bus")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = notification_bus.nonsense


@pytest.mark.parametrize("package", ["notification_bus", *ADAPTERS])
def test_types_are_shipped(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").is_file()


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def test_core_imports_no_adapter() -> None:
    found = [(path.name, name) for path in _files(ROOT) for name in _imports(path) if name.split(".")[0] in ADAPTERS]
    assert found == []


def test_imports_inside_core_point_one_way() -> None:
    wrong: list[str] = []
    for path in _files(ROOT):
        parts = path.relative_to(ROOT).parts
        folder = parts[0] if len(parts) > 1 else ""
        for name in _imports(path):
            if name.split(".")[0] != "notification_bus":
                continue
            target = name.split(".")[1] if name.count(".") and (ROOT / name.split(".")[1]).is_dir() else ""
            if target != folder and target not in CORE_FOLDERS[folder]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_imports_cores_public_modules_and_no_other_adapter(adapter: str) -> None:
    spec = find_spec(adapter)
    assert spec is not None
    assert spec.origin is not None
    wrong: list[str] = []
    for path in _files(Path(spec.origin).parent):
        for name in _imports(path):
            package, *rest = name.split(".")
            if (package in ADAPTERS and package != adapter) or (
                package == "notification_bus" and not all(map(_is_public, rest))
            ):
                wrong.append(f"{path.name} imports {name}")
    assert wrong == []


def _loaded_by(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after a statement."""
    program = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, encoding="utf-8", check=True
    )
    return set(json.loads(run.stdout))


HEAVY = {
    "pytest",
    "_pytest",
    "mcp",
    "fastmcp",
    "redis",
    "nats",
    "asyncpg",
    "trio",
    "rich",
    "hypothesis",
    "starlette",
    *ADAPTERS,
}


def test_importing_the_package_loads_neither_a_broker_nor_what_only_its_extras_need() -> None:
    loaded = _loaded_by(
        "import notification_bus, notification_bus.subscriptions; notification_bus.open_bus('memory://?channel=x')"
    )
    assert not loaded & HEAVY
    assert not [name for name in loaded if name.startswith(("notification_bus.mcp", "notification_bus.cli"))]
    assert "pydantic" not in loaded or "notification_bus.subscriptions" in loaded


def test_the_errors_of_this_package_have_one_base_and_say_when_they_come() -> None:
    for name in errors.__all__:
        error = getattr(errors, name)
        assert issubclass(error, NotificationBusError)
        assert error.__doc__


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.InvalidNotificationError, ValueError),
        (errors.MalformedBodyError, ValueError),
        (errors.NotificationTooLargeError, ValueError),
        (errors.BusURLError, ValueError),
        (errors.BusClosedError, RuntimeError),
        (errors.BusBackendError, RuntimeError),
        (errors.BusNotReadyError, TimeoutError),
    ],
)
def test_an_error_can_be_caught_as_the_built_in_kind_that_it_is(error: type[Exception], kind: type[Exception]) -> None:
    assert issubclass(error, kind)


def test_an_error_about_size_says_what_to_do_and_survives_pickling() -> None:
    error = NotificationTooLargeError(8_001, 7_999)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert (again.size, again.limit, str(again)) == (8_001, 7_999, str(error))
    assert "has 8001 bytes and this bus carries at most 7999: publish an identifier" in str(error)


def test_core_needs_two_distributions_and_no_more() -> None:
    needed = [one for one in distribution("notification-bus").requires or [] if "extra ==" not in one]
    assert sorted(one.split(">")[0] for one in needed) == ["anyio", "pydantic"]
