"""The official conformance suite of MCP, installed from npm as the lock file beside this says."""

from tests.mcp.official._suite import REQUIRED, VARIABLE, Check, Suite, SuiteError, UnreachableError, install, ready

__all__ = ["REQUIRED", "VARIABLE", "Check", "Suite", "SuiteError", "UnreachableError", "install", "ready"]
