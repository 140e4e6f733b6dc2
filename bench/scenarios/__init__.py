"""What is measured. A scenario is a module with NAME (entries begin with it) and run(bench); SCENARIOS is the order of a
full run. A later issue adds its module here."""

from scenarios import (
    campaign,
    compaction,
    fanout,
    large,
    million,
    op_browser,
    queue_growth,
    queue_million,
    queue_pending,
    relay,
    sched,
    slow_disk,
    storm,
    syncs,
    vs_postfix,
)

SCENARIOS = (
    relay.Relay,
    relay.RelayReuse,
    fanout.Fanout,
    storm.Storm,
    syncs.Syncs,
    million.Million,
    sched.Sched,
    vs_postfix.VsPostfix,
    slow_disk.SlowDisk,
    compaction.Compaction,
    large.Large,
    queue_pending.TenMillionPending,
    queue_pending.TenMillionScattered,
    queue_million.MillionMessages,
    queue_growth.Growth,
    campaign.Campaign,
    op_browser.Browser,
)
