"""What is measured. A scenario is a module with NAME (entries begin with it) and run(bench); SCENARIOS is the order of a
full run. A later issue adds its module here."""

from scenarios import fanout, million, relay, sched, storm, syncs, vs_postfix

SCENARIOS = (
    relay.Relay, relay.RelayReuse, fanout.Fanout, storm.Storm, syncs.Syncs, million.Million, sched.Sched,
    vs_postfix.VsPostfix,
)
