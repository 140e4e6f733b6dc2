"""Small inputs that failed once, from public reports about mail servers, with their siblings."""

import time

from field import deliveries, envelopes, headers
from results import Goal

CASES = (*envelopes.CASES, *headers.CASES, *deliveries.CASES)


class FieldCases:
    """Inputs of bench/field whose result is not the right one."""

    name = "field.cases"
    entries = ("",)
    smoke = {"CASES": (envelopes.sloppy_paths, deliveries.same_subscriber)}

    def run(self, bench):
        table, faults = {}, []
        for case in CASES:
            begin = time.monotonic()
            rows = list(case(bench.binary))
            for row in rows:
                kind = table.setdefault(row.kind, {"inputs": 0, "faults": 0})
                kind["inputs"] += 1
                kind["faults"] += not row.holds
            wrong = [row for row in rows if not row.holds]
            faults += [[row.kind, row.input, row.right, row.got] for row in wrong]
            print(f"    {case.__name__}: {len(rows)} inputs, {len(wrong)} faults, {time.monotonic() - begin:.0f} s", flush=True)
            for row in wrong:
                print(f"        {row.kind}: {row.input}\n            right: {row.right}\n            got:   {row.got}", flush=True)
        command = "python3 bench/run.py --only field.cases"
        bench.results.record(self.name, "faults", [(len(faults), 0)], command, Goal(most=0), peer_name="none", kinds=table, faults=faults)
