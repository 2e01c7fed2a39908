# SPDX-License-Identifier: Apache-2.0
"""The plugin in a user's own project: quick to load, and honest about checks that failed."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


def test_importing_the_plugin_imports_neither_oslo_nor_mistral():
    script = (
        "import sys, pytest\n"
        "import mistral_failover.lab.testing.plugin\n"
        "heavy = ('oslo', 'mistral.', 'mistral_lib', 'sqlalchemy', 'mistral_failover.embedded')\n"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"


def test_a_users_own_actions_and_workflows_are_tested_the_same_way(pytester: pytest.Pytester):
    # An installed package with an action of its own: what pip would leave behind.
    pytester.makepyfile(
        my_actions="""
        from mistral_lib import actions

        class Stop(actions.Action):
            def __init__(self, server, hard=False):
                super().__init__()
                self.server, self.hard = server, hard

            def run(self, context):
                return {"stopped": self.server}
        """
    )
    info = pytester.mkdir("my_pack-1.0.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mistral.actions]\nmy.stop = my_actions:Stop\n")
    (pytester.path / "stop.yaml").write_text(
        """\
version: '2.0'
stop:
  input: [server]
  output: {r: <% $.r %>}
  tasks:
    stop:
      action: my.stop
      input: {server: <% $.server %>}
      publish: {r: <% task().result %>}
"""
    )
    pytester.makepyfile(
        """
        import threading

        def test_real(workflow):
            workflow.load("stop.yaml")
            assert workflow.run("stop", {"server": "a"}).output == {"r": {"stopped": "a"}}

        def test_replaced(workflow):
            workflow.load("stop.yaml")
            workflow.replace("my.stop", "done")
            assert workflow.run("stop", {"server": "a"}).output == {"r": "done"}
            assert workflow.calls("my.stop") == [{"server": "a"}]

        def test_a_check_without_a_waiting_caller(workflow):
            called = threading.Event()

            def check(server):
                try:
                    assert server == "b"
                finally:
                    called.set()

            workflow.load("stop.yaml")
            workflow.replace("my.stop", check)
            run = workflow.start("stop", {"server": "a"})
            called.wait(5)
            while workflow.look(run).state == "RUNNING":
                pass
        """
    )
    pytester.makeini("[pytest]\npythonpath = .")
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*assert server == *b*"])


def test_without_its_extra_a_test_is_told_what_to_install(pytester: pytest.Pytester):
    pytester.makeconftest(
        """
        import importlib.machinery

        found = importlib.machinery.PathFinder.find_spec

        def without(name, path=None, target=None):
            return None if name == "mistral" else found(name, path, target)

        importlib.machinery.PathFinder.find_spec = staticmethod(without)
        """
    )
    pytester.makepyfile("def test_it(workflow): pass")

    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*pip install 'mistral-failover?embedded?'*"])
