"""One line for each check, and at the end how many there were."""

import sys
import time
import traceback


class Report:
    """Runs checks. A check returns a short text on what it saw, or raises AssertionError or charts.Failed."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.started = time.monotonic()

    def check(self, name, function, *arguments):
        """Runs one check; its failure does not stop the next."""
        try:
            detail = function(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the check has not passed
            self.failed += 1
            text = str(error) or traceback.format_exc()
            print(f"FAIL  {name}: {text}", flush=True)
        else:
            self.passed += 1
            print(f"ok    {name}{f': {detail}' if detail else ''}", flush=True)

    def cannot(self, name, reason):
        """Says that a check did not run, and why."""
        self.skipped += 1
        print(f"not run  {name}: {reason}", flush=True)

    def end(self):
        """The exit code."""
        print(f"kubernetes checks took {time.monotonic() - self.started:.0f}s")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        sys.exit(1 if self.failed else 0)


def same(actual, expected, what):
    """Fails with both sides when they differ."""
    assert actual == expected, f"{what}: {actual!r}, not {expected!r}"


def none(problems):
    """Fails when there are problems, showing the first few."""
    assert not problems, f"{len(problems)} wrong, such as\n  " + "\n  ".join(map(str, problems[:8]))
