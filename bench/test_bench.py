"""Of the kit itself, without a server: `python3 -m unittest discover -s bench`, a part of `make test`."""

import io
import json
import os
import socket
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import dkim_messages
import run
from before import run_paired
from bench import Bench
from lanes import Outcome, run_beside
from measure import BenchError, CannotHere
from results import SHOWN, Goal, Results
from scenarios import SCENARIOS, field_managers, identity_verify
from sources import lab_report
from verifiers import rewrites
from verifiers.verdicts import ED25519, PASS, RSA, Signature, Verdict

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "README.md")


class EveryScenario(unittest.TestCase):
    def test_has_a_smoke_size_of_constants_that_there_are(self):
        for scenario in SCENARIOS:
            self.assertTrue(hasattr(scenario, "smoke"), f"{scenario.__name__} has no `smoke`, the sizes of a smoke run")
            for base in scenario.__mro__:
                for name, size in vars(base).get("smoke", {}).items():
                    if name == "entries":
                        self.assertLessEqual(set(size), set(scenario.entries), scenario.__name__)
                        continue
                    self.assertTrue(hasattr(sys.modules[base.__module__], name), f"{base.__module__} has no {name}")

    def test_says_what_it_is_and_what_it_promises(self):
        with open(README) as file:
            readme = file.read()
        for scenario in SCENARIOS:
            self.assertTrue(scenario.__doc__, scenario.__name__)
            self.assertIsInstance(getattr(scenario, "entries", None), tuple, f"{scenario.__name__} has no `entries`")
            self.assertTrue(f"`{scenario.name}" in readme, f"{scenario.name} is not in the README's table")

    def test_is_chosen_by_its_name_and_by_that_of_its_work(self):
        def names(only):
            return [scenario.name for scenario in run.choose(SCENARIOS, only)]

        for scenario in SCENARIOS:
            self.assertIn(scenario.name, names(scenario.name))
        self.assertEqual(names("path.relay"), ["path.relay", "path.relay_reuse"])
        self.assertEqual(names("path.relay_reuse"), ["path.relay_reuse"])
        self.assertEqual(names("path.relay.cpu"), ["path.relay"])
        self.assertEqual(names("no.such"), [])


class Good:
    """Records what it promises."""

    name = "test.good"
    entries = ("", ".*.rate")

    def run(self, bench):
        for name in (self.name, f"{self.name}.ext4.rate"):
            bench.results.record(name, "s", [[1, 2]], "true", Goal(most=0))


class Silent(Good):
    """Forgets an entry."""

    name = "test.silent"
    entries = (".time",)


class Raising(Good):
    """Raises what nobody expects."""

    name = "test.raising"

    def run(self, bench):
        raise TypeError("'NoneType' object is not subscriptable")


class Elsewhere(Good):
    """Needs what is not here."""

    name = "test.elsewhere"

    def run(self, bench):
        raise CannotHere("perf is missing")


class FakeBench:
    def __init__(self, folder, smoke, peers=False):
        self.smoke, self.peers = smoke, peers
        judges = (lambda goal: goal.most == 0) if peers else lambda _: not smoke
        self.results = Results(os.path.join(folder, "results.json"), judges, is_partial=not smoke)


class RunAll(unittest.TestCase):
    def run_all(self, smoke, environment=None, peers=False):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            bench = FakeBench(folder, smoke, peers)
            variables = {name: value for name, value in os.environ.items() if name != "STENTOR_NO_SKIP"}
            with mock.patch.dict(os.environ, {**variables, **(environment or {})}, clear=True):
                ended = run.run_all(bench, [Raising, Elsewhere, Silent, Good])
            return (ended.failed, ended.skipped), bench.results.load(), bench.results.print_table()

    def test_whatever_one_raises_the_others_run_and_it_is_said(self):
        (failed, skipped), entries, met = self.run_all(smoke=False)
        self.assertEqual((failed, skipped), (["test.raising", "test.elsewhere", "test.silent"], []))
        self.assertEqual(entries["test.good"]["met"], False)
        self.assertFalse(met)

    def test_a_smoke_run_judges_no_goal_and_skips_what_the_machine_cannot(self):
        (failed, skipped), entries, met = self.run_all(smoke=True)
        self.assertEqual((failed, skipped), (["test.raising", "test.silent"], ["test.elsewhere"]))
        self.assertNotIn("met", entries["test.good"])
        self.assertTrue(met)
        (failed, skipped), _, _ = self.run_all(smoke=True, environment={"STENTOR_NO_SKIP": "1"})
        self.assertEqual((failed, skipped), (["test.raising", "test.elsewhere", "test.silent"], []))


    def test_beside_programs_of_others_a_difference_counts_and_all_have_to_be_there(self):
        (failed, skipped), entries, met = self.run_all(smoke=True, peers=True)
        self.assertEqual((failed, skipped), (["test.raising", "test.elsewhere", "test.silent"], []))
        self.assertEqual((entries["test.good"]["met"], met), (False, False))


class Dying(Good):
    """Takes its process with it."""

    name = "test.dying"

    def run(self, bench):
        os._exit(9)


@unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
class Lanes(unittest.TestCase):
    def beside(self, *scenarios):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as output:
            bench = Bench(folder, "/bin/true", 1, smoke=True)
            with mock.patch("lanes.by_module", lambda scenarios: [[scenario] for scenario in scenarios]):
                outcome = run_beside(bench, scenarios, run.run_all, lanes=2)
            return outcome, bench.results.load(), output.getvalue()

    def test_results_are_merged_and_any_other_end_is_a_failure(self):
        outcome, entries, output = self.beside(Dying, Good, Raising, Elsewhere)
        self.assertEqual((sorted(outcome.failed), outcome.skipped), (["test.dying", "test.raising"], ["test.elsewhere"]))
        self.assertEqual(list(entries), ["test.good", "test.good.ext4.rate"])
        self.assertIn("SKIPPED", output)

    def test_lanes_can_use_the_same_port(self):
        class Listening(Good):
            """Holds a port."""

            def run(self, bench):
                with socket.create_server(("127.0.0.1", port)):
                    super().run(bench)

        with socket.create_server(("127.0.0.1", 0)) as outside:
            port = outside.getsockname()[1]
            outcome, entries, output = self.beside(Listening, Listening)
        self.assertEqual((outcome.failed, list(entries)), ([], ["test.good", "test.good.ext4.rate"]), output)


class Judging(unittest.TestCase):
    def test_a_figure_of_nought_meets_a_bound_that_is_a_ratio(self):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            results = Results(os.path.join(folder, "results.json"))
            results.record("test.nought", "s", [[0, 3]], "none", Goal(ratio=1))
            self.assertEqual((results.load()["test.nought"]["ratio"], results.load()["test.nought"]["met"]), (None, True))

    def test_a_figure_without_a_goal_is_not_judged(self):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as output:
            results = Results(os.path.join(folder, "results.json"))
            results.record("test.shown", "s", [[9, 3]], "none", SHOWN)
            self.assertTrue(results.print_table())
            self.assertNotIn("met", results.load()["test.shown"])
        self.assertIn("  none, not judged\n", output.getvalue())


class Before(unittest.TestCase):
    def test_each_figure_keeps_its_direction(self):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            bench = mock.Mock(folder=folder, rounds=1)

            def side(_bench, folder, name, binary):
                return mock.Mock(binary=binary, results=Results(os.path.join(folder, f"{name}.json")))

            def run_all(side_bench, _chosen):
                value = 2 if side_bench.binary == "old" else 4
                side_bench.results.record("test.rate", "messages/s", [[value, 9]], "none", Goal(most=9), more_is_better=True)
                side_bench.results.record("test.speed", "s per MB/s", [[value, 9]], "none", Goal(ratio=1))
                return Outcome()

            with mock.patch("before._bench", side):
                run_paired(bench, "old", [Good], run_all)
            entries = bench.results.load()
            self.assertEqual({name: entry["ratio"] for name, entry in entries.items()}, {"test.rate": 2, "test.speed": 0.5})
            self.assertEqual({name: entry["more_is_better"] for name, entry in entries.items()}, {"test.rate": True, "test.speed": False})


class Managers(unittest.TestCase):
    def test_no_figure_is_recorded_unless_all_are_installed(self):
        here, elsewhere = mock.Mock(), mock.Mock()
        here.name, elsewhere.name = "here", "elsewhere"
        here.is_there.return_value, elsewhere.is_there.return_value = True, False
        counted = {"missed": 0}
        for managers, is_run in ((here,), True), ((here, elsewhere), False):
            bench = mock.Mock(peers=False)
            with (
                mock.patch.multiple(field_managers, MANAGERS=managers, one=lambda *_: counted),
                mock.patch("os.geteuid", return_value=0),
                redirect_stdout(io.StringIO()),
            ):
                if is_run:
                    field_managers.Managers().run(bench)
                else:
                    with self.assertRaisesRegex(CannotHere, "not installed: elsewhere; "):
                        field_managers.Managers().run(bench)
            self.assertEqual(bench.results.record.called, is_run)


class ConstantVerifier:
    """A verifier with the same result for each file, unless the message has a space before a colon."""

    name = "dkimpy"
    algorithms = (RSA, ED25519)

    def __init__(self, result, reads_all=True):
        self.result, self.reads_all = result, reads_all

    def verify(self, folder, files, _):
        verdicts = [Verdict(Signature(dkim_messages.AUTHOR_DOMAIN, algorithm), self.result) for algorithm in self.algorithms]
        is_read = {}
        for file in files:
            with open(os.path.join(folder, file), "rb") as message:
                is_read[file] = self.reads_all or b" :" not in message.read()
        return {file: verdicts if is_read[file] else [] for file in files}


class DkimVerifiers(unittest.TestCase):
    def copies(self, folder, content=b"From: a@example.org\r\n\r\ntext\r\n"):
        copies = identity_verify.Copies.__new__(identity_verify.Copies)
        copies.folder, copies.messages = folder, [dkim_messages.Message(0, dkim_messages.dot_lines, "full", content)]
        copies.stored, copies.records = {0: content}, mock.Mock(domains=lambda: {dkim_messages.AUTHOR_DOMAIN})
        copies.write(identity_verify.file_of(0), content)
        return copies

    def finding(self, verifier, content, names=None):
        with tempfile.TemporaryDirectory() as folder:
            copies = self.copies(folder, content)
            return identity_verify.Finding(copies, verifier, verifier.verify(folder, names or [identity_verify.file_of(0)], None))

    def test_messages_are_those_of_the_seed_and_of_all_kinds(self):
        first, again = (list(dkim_messages.messages(2 * len(dkim_messages.KINDS), 1)) for _ in range(2))
        self.assertEqual([one.octets for one in first], [one.octets for one in again])
        self.assertEqual({one.kind for one in first}, {kind.__name__ for kind in dkim_messages.KINDS})

    def test_a_message_counts_unless_all_signatures_are_accepted(self):
        plain = b"From: a@example.org\r\n\r\ntext\r\n"
        self.assertEqual(self.finding(ConstantVerifier(PASS), plain).counts()["missed"], 0)
        self.assertEqual(self.finding(ConstantVerifier("fail"), plain).counts()["missed"], 1)
        deaf = ConstantVerifier(PASS, reads_all=False)
        found = self.finding(deaf, b"From : a@example.org\r\n\r\ntext\r\n")
        self.assertEqual((found.misses, found.argued), ({}, {"space before the colon": 1}))
        # The rewritten message is not accepted either.
        found = self.finding(deaf, b"From : a@example.org\r\n\r\na :\r\n")
        self.assertEqual((len(found.misses), found.argued), (1, {}))

    def test_a_verifier_that_accepts_changed_messages_proves_nothing(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(BenchError, "dkimpy accepts changed messages"):
            self.copies(folder).verify([ConstantVerifier(PASS)])

    def test_rewrites_keep_the_canonical_form(self):
        self.assertEqual(rewrites.drop_space_before_colon(b"To\t :x\r\n y :\r\n\r\na :\r\n"), b"To:x\r\n y :\r\n\r\na :\r\n")
        self.assertEqual(rewrites.add_empty_line(b"A: b\r\n"), b"A: b\r\n\r\n")
        self.assertEqual(rewrites.add_empty_line(b"A: b\r\n\r\nx\r\n"), b"A: b\r\n\r\nx\r\n")
        for body, left in (b"", b""), (b" \r\n\r\n", b""), (b"\r\nx \r\n \r\n\t\r\n", b"\r\nx \r\n"), (b"x\r\n", b"x\r\n"):
            self.assertEqual(rewrites.drop_blank_tail(b"A: b\r\n\r\n" + body), b"A: b\r\n\r\n" + left)


class LabReport(unittest.TestCase):
    def test_a_figure_that_there_is_not_is_left_out(self):
        cell = {"median": 5.0}
        load = {name: cell for name in ("accepted", "recipients", "overall_per_s", "source_cpu_us")} | {"due": None}
        tables = {"load": [load], "steps": [{"step": "end of data", "p50_us": cell, "p99_us": None}]}
        report = lab_report(json.dumps({"tables": tables}))
        self.assertEqual(report["report"]["accepted"], 5)
        self.assertEqual(report["final_us"], {"p50": 5.0})


if __name__ == "__main__":
    unittest.main()
