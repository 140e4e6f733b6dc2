//! Synthetic traces with exactly known answers, and random events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::requests::Kind;
use super::*;
use crate::event::{Event, Trace, Value};
use crate::operation::{Access, Operation};

mod by_hand;

const DISK: i64 = 254 << 20;
const OTHER: i64 = 8 << 20;
/// The traced thread, jbd2, a worker.
const APP: i32 = 100;
const JBD2: i32 = 50;
const WORKER: i32 = 60;

#[derive(Default)]
struct TraceBuilder {
    trace: Trace,
}

fn n(number: i64) -> Value {
    Value::Number(number)
}

fn t(text: &str) -> Value {
    Value::Text(text.into())
}

impl TraceBuilder {
    fn new() -> TraceBuilder {
        let mut builder = TraceBuilder::default();
        for (tid, name) in [(APP, "app"), (JBD2, "jbd2/vda-8"), (WORKER, "kworker/u8:0")] {
            builder.trace.threads.insert(tid, name.to_owned());
        }
        // A trace has all kinds that were switched on.
        TraceBuilder::number(&mut builder.trace.kinds, "sched/sched_switch");
        builder
    }

    fn number(names: &mut Vec<String>, name: &str) -> u16 {
        if let Some(at) = names.iter().position(|known| known == name) {
            return at as u16;
        }
        names.push(name.to_owned());
        (names.len() - 1) as u16
    }

    fn event(&mut self, ns: u64, cpu: u16, tid: i32, context: u8, kind: &str, fields: &[(&str, Value)]) {
        let kind = TraceBuilder::number(&mut self.trace.kinds, kind);
        let fields = fields
            .iter()
            .map(|(name, value)| (TraceBuilder::number(&mut self.trace.fields, name), value.clone()))
            .collect();
        self.trace.events.push(Event { ns, cpu, tid, context, kind, fields });
    }

    /// In the thread itself, on CPU 0.
    fn at(&mut self, ns: u64, tid: i32, kind: &str) {
        self.event(ns, 0, tid, 0, kind, &[]);
    }

    /// A blocking (`D`) or preempting (`R`) switch.
    fn switch(&mut self, ns: u64, from: i32, to: i32, is_blocked: bool) {
        let state = n(if is_blocked { 2 } else { 0 });
        self.event(ns, 0, from, 0, "sched/sched_switch", &[("prev_state", state), ("next_pid", n(i64::from(to)))]);
    }

    fn wake(&mut self, ns: u64, by: i32, context: u8, tid: i32) {
        self.event(ns, 0, by, context, "sched/sched_waking", &[("pid", n(i64::from(tid)))]);
    }

    fn block(&mut self, ns: u64, tid: i32, context: u8, what: &str, request: (i64, i64, i64, &str)) {
        let (dev, sector, sectors, rwbs) = request;
        let fields = [("dev", n(dev)), ("sector", n(sector)), ("nr_sector", n(sectors)), ("rwbs", t(rwbs))];
        self.event(ns, 0, tid, context, &format!("block/block_{what}"), &fields);
    }

    fn work(&mut self, ns: u64, tid: i32, context: u8, what: &str, function: &str) {
        let fields = [("work", n(7)), ("function", t(function)), ("workqueue", t("some"))];
        self.event(ns, 0, tid, context, &format!("workqueue/workqueue_{what}"), &fields);
    }

    fn traced(self, start_ns: u64, end_ns: u64) -> Traced {
        let operation =
            Operation { tid: APP, start_ns, moved_ns: start_ns, end_ns, bytes: 4096, access: Access::Write };
        Traced {
            name: "here".to_owned(),
            place: None,
            work: None,
            run: 1,
            trace: self.trace,
            operations: vec![operation],
            generator: BTreeSet::from([APP]),
            tracer: BTreeSet::new(),
            devices: Vec::new(),
            traced_ns: end_ns - start_ns,
            scope: "fs".to_owned(),
            buffer_kib: 64,
            missing: Vec::new(),
        }
    }

    /// Nanoseconds of each layer that has any, of the one operation.
    fn layers(self, start: u64, end: u64) -> BTreeMap<Layer, u64> {
        layers(&Analysis::of(&self.traced(start, end)))
    }

    fn analysis(self, start: u64, end: u64) -> Analysis {
        Analysis::of(&self.traced(start, end))
    }
}

fn layers(analysis: &Analysis) -> BTreeMap<Layer, u64> {
    let row = &analysis.groups[0].rows[0];
    assert_eq!(row.layers.iter().sum::<u64>(), row.wall_ns);
    Layer::EVERY.iter().zip(row.layers).filter(|(_, ns)| *ns > 0).map(|(layer, ns)| (*layer, ns)).collect()
}

/// (calls, exclusive, inclusive) of a step.
fn step(analysis: &Analysis, name: &str) -> (u64, u64, u64) {
    let found = analysis.groups[0].steps.iter().find(|(step, _)| &*step.name == name);
    found.map_or((0, 0, 0), |(_, tally)| (tally.calls, tally.exclusive, tally.inclusive))
}

fn expect<const N: usize>(pairs: [(Layer, u64); N]) -> BTreeMap<Layer, u64> {
    BTreeMap::from(pairs)
}

#[test]
fn spans_nest_and_a_lower_layer_is_not_counted_in_the_caller() {
    let mut builder = TraceBuilder::new();
    builder.at(10, APP, "syscalls/sys_enter_pwrite64");
    builder.at(20, APP, "ext4/ext4_da_write_begin");
    builder.at(25, APP, "ext4/ext4_es_lookup_extent_enter");
    builder.at(30, APP, "ext4/ext4_es_lookup_extent_exit");
    builder.at(50, APP, "ext4/ext4_da_write_end");
    builder.at(60, APP, "writeback/writeback_dirty_folio");
    builder.at(80, APP, "syscalls/sys_exit_pwrite64");
    let analysis = builder.analysis(0, 100);
    let expected = expect([
        (Layer::Application, 30),
        (Layer::Call, 10),
        (Layer::PageCache, 5 + 20 + 20),
        (Layer::FileSystem, 5 + 10),
    ]);
    assert_eq!(layers(&analysis), expected);
    assert_eq!(step(&analysis, "pwrite64"), (1, 10, 70));
    assert_eq!(step(&analysis, "get the page and copy"), (1, 25, 30));
    assert_eq!(step(&analysis, "look up the extent"), (1, 5, 5));
    assert_eq!(analysis.groups[0].rows[0].in_calls_ns, 70);
    let inclusive = analysis.groups[0].inclusive;
    assert_eq!((inclusive[Layer::Call.index()], inclusive[Layer::FileSystem.index()]), (70, 5 + 30));
}

/// A sync that waits for the journal's thread, which waits for the device and its flush.
fn journalled() -> TraceBuilder {
    let mut builder = TraceBuilder::new();
    builder.at(10, APP, "syscalls/sys_enter_fdatasync");
    builder.at(12, APP, "ext4/ext4_sync_file_enter");
    builder.wake(20, APP, 0, JBD2);
    builder.switch(25, APP, JBD2, true);
    builder.at(30, JBD2, "jbd2/jbd2_start_commit");
    builder.at(40, JBD2, "jbd2/jbd2_commit_logging");
    builder.block(50, JBD2, 0, "bio_queue", (DISK, 64, 8, "FWFSM"));
    builder.block(52, JBD2, 0, "getrq", (DISK, 64, 8, "FWFSM"));
    builder.block(53, JBD2, 0, "io_start", (DISK, 64, 8, "FWFSM"));
    builder.switch(60, JBD2, WORKER, true);
    builder.block(70, WORKER, 0, "rq_issue", (DISK, 0, 0, "FF"));
    builder.switch(75, WORKER, 0, true);
    builder.block(170, 0, Event::SOFTIRQ, "rq_complete", (DISK, -1, 0, "FF"));
    builder.block(180, WORKER, 0, "rq_issue", (DISK, 64, 8, "WSM"));
    builder.block(280, 0, Event::SOFTIRQ, "rq_complete", (DISK, 64, 8, "WSM"));
    builder.wake(285, 0, Event::SOFTIRQ, JBD2);
    builder.switch(290, 0, JBD2, false);
    builder.at(300, JBD2, "jbd2/jbd2_end_commit");
    builder.wake(305, JBD2, 0, APP);
    builder.switch(310, JBD2, APP, true);
    builder.at(320, APP, "ext4/ext4_sync_file_exit");
    builder.at(325, APP, "syscalls/sys_exit_fdatasync");
    builder
}

#[test]
fn a_wait_is_what_the_other_thread_waited_for() {
    let analysis = journalled().analysis(10, 325);
    let expected = expect([
        // 10-12 and 320-325.
        (Layer::Call, 7),
        // 12-25, 310-320.
        (Layer::FileSystem, 23),
        // 25-50 by jbd2 (30-50 in its spans), 53-60, 290-305 less what is nobody's span.
        (Layer::Journal, 5 + 10 + 10 + 7 + 10 + 5),
        // 50-53 while it runs, 60-70 and 170-180 queued, 280-285.
        (Layer::Block, 3 + 10 + 10 + 5),
        (Layer::Device, 200),
        // Woken at 285 and at 305.
        (Layer::Scheduler, 5 + 5),
    ]);
    assert_eq!(layers(&analysis), expected);
    assert_eq!(step(&analysis, "commit: write the log").0, 1);
    assert_eq!(step(&analysis, "flush"), (1, 100, 100));
    assert_eq!(step(&analysis, "write"), (1, 100, 100));
    // The sync has all that it waited for.
    assert_eq!(step(&analysis, "sync the file").2, 320 - 12);
    let jbd2 = analysis.people.iter().find(|person| person.name.starts_with("jbd2")).unwrap();
    assert_eq!(jbd2.role, ThreadRole::Helper);
    let median = &analysis.groups[0].median;
    let flush = median.iter().find(|line| &*line.step.name == "flush").unwrap();
    assert_eq!((flush.start, flush.end, flush.step.layer), (60, 160, Layer::Device));
}

#[test]
fn an_interrupt_that_completes_a_request_ends_the_wait_for_it() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_pread64");
    builder.block(10, APP, 0, "bio_queue", (DISK | 1, 800, 8, "R"));
    builder.block(12, APP, 0, "getrq", (DISK | 1, 800, 8, "R"));
    builder.block(13, APP, 0, "io_start", (DISK, 800, 8, "R"));
    // A second bio becomes a part of it.
    builder.block(14, APP, 0, "bio_queue", (DISK, 808, 8, "R"));
    builder.block(15, APP, 0, "bio_backmerge", (DISK, 808, 8, "R"));
    builder.block(16, APP, 0, "rq_insert", (DISK, 800, 16, "R"));
    // Another device is none of its business.
    builder.block(17, APP, 0, "getrq", (OTHER, 4, 8, "W"));
    builder.block(18, APP, 0, "rq_issue", (OTHER, 4, 8, "W"));
    builder.switch(20, APP, 0, true);
    builder.block(40, 0, 0, "rq_issue", (DISK, 800, 16, "R"));
    builder.event(85, 1, 0, Event::IRQ, "irq/irq_handler_entry", &[("name", t("disk"))]);
    builder.block(90, 0, Event::SOFTIRQ, "rq_complete", (DISK, 800, 16, "R"));
    builder.block(91, 0, Event::SOFTIRQ, "rq_complete", (OTHER, 4, 8, "W"));
    builder.block(92, 0, Event::SOFTIRQ, "rq_complete", (DISK, 999, 8, "W"));
    builder.trace.events.pop();
    builder.trace.events.pop();
    builder.wake(95, 0, Event::SOFTIRQ, APP);
    builder.switch(97, 0, APP, false);
    builder.at(100, APP, "syscalls/sys_exit_pread64");
    let mut traced = builder.traced(0, 100);
    traced.place = Some(partitioned());
    let analysis = Analysis::of(&traced);
    let expected = expect([
        (Layer::Call, 10 + 3 + 1),
        // 10-13 and 14-20 submit, 20-40 queued, 90-95 completion.
        (Layer::Block, 3 + 6 + 20 + 5),
        (Layer::Device, 50),
        (Layer::Scheduler, 2),
    ]);
    assert_eq!(layers(&analysis), expected);
    assert_eq!(step(&analysis, "read"), (1, 50, 50));
}

fn partitioned() -> Place {
    Place {
        directory: "/".into(),
        file_system: "ext4".to_owned(),
        mount_point: "/".into(),
        mount_options: String::new(),
        free_mib: 0,
        device: Some(stentor_measure::Device {
            name: "sda".to_owned(),
            number: "254:0".to_owned(),
            mounted: (254, 1),
            model: None,
            rotational: None,
            write_cache: None,
            scheduler: None,
            backing_file: None,
        }),
    }
}

#[test]
fn a_missing_end_lasts_until_the_call_ends() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.at(10, APP, "xfs/xfs_file_fsync");
    builder.at(20, APP, "xfs/xfs_log_force");
    builder.at(40, APP, "syscalls/sys_exit_fsync");
    // An end without a beginning.
    builder.at(50, APP, "ext4/ext4_sync_file_exit");
    builder.at(60, APP, "syscalls/sys_exit_write");
    let expected = expect([(Layer::Call, 10), (Layer::FileSystem, 10), (Layer::Journal, 20), (Layer::Application, 30)]);
    assert_eq!(builder.layers(0, 70), expected);
}

#[test]
fn a_sync_on_btrfs_writes_pages_and_then_logs() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.at(2, APP, "btrfs/btrfs_sync_file");
    builder.at(5, APP, "btrfs/extent_writepage");
    builder.at(20, APP, "btrfs/btrfs_ordered_extent_lookup_for_logging");
    builder.at(22, APP, "writeback/folio_wait_writeback");
    builder.switch(24, APP, 0, true);
    builder.event(30, 1, 0, Event::SOFTIRQ, "irq/softirq_entry", &[("vec", n(1))]);
    builder.event(34, 1, 0, Event::SOFTIRQ, "sched/sched_waking", &[("pid", n(i64::from(APP)))]);
    builder.switch(34, 0, APP, false);
    builder.at(40, APP, "btrfs/btrfs_cow_block");
    builder.at(50, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(0, 50);
    assert_eq!(step(&analysis, "write pages"), (1, 15, 15));
    assert_eq!(step(&analysis, "log the file"), (1, 2 + 16, 30));
    assert_eq!(layers(&analysis)[&Layer::PageCache], 2 + 10);
}

#[test]
fn who_could_run_and_did_not_waits_for_the_scheduler() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_write");
    builder.switch(10, APP, WORKER, false);
    builder.switch(40, WORKER, APP, true);
    builder.at(50, APP, "syscalls/sys_exit_write");
    // Woken before it was asleep, and asleep for no time at all.
    builder.at(60, APP, "syscalls/sys_enter_write");
    builder.event(64, 1, 0, Event::SOFTIRQ, "sched/sched_waking", &[("pid", n(i64::from(APP)))]);
    builder.switch(65, APP, WORKER, true);
    builder.switch(75, WORKER, APP, true);
    builder.at(80, APP, "syscalls/sys_exit_write");
    let expected = expect([(Layer::Call, 20 + 10), (Layer::Scheduler, 30 + 10), (Layer::Application, 10)]);
    let analysis = builder.analysis(0, 80);
    assert_eq!(layers(&analysis), expected);
    assert_eq!(step(&analysis, "preempted"), (1, 30, 30));
}

#[test]
fn what_nobody_explains_is_unattributed() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_write");
    builder.switch(10, APP, 0, true);
    // No waking at all.
    builder.switch(30, 0, APP, false);
    builder.switch(40, APP, 0, true);
    // By an interrupt that completes nothing.
    builder.event(50, 0, 0, Event::SOFTIRQ, "irq/softirq_entry", &[("vec", n(9))]);
    builder.wake(60, 0, Event::SOFTIRQ, APP);
    builder.switch(61, 0, APP, false);
    // Never woken.
    builder.switch(80, APP, 0, true);
    let expected = expect([(Layer::Call, 10 + 10 + 19), (Layer::Unattributed, 20 + 20 + 20), (Layer::Scheduler, 1)]);
    assert_eq!(builder.layers(0, 100), expected);
}

#[test]
fn timers_are_sleep_of_the_layer_that_sleeps() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.at(5, APP, "jbd2/jbd2_handle_stats");
    builder.switch(10, APP, 0, true);
    builder.event(50, 0, 0, Event::SOFTIRQ, "irq/softirq_entry", &[("vec", n(1))]);
    builder.wake(60, 0, Event::SOFTIRQ, APP);
    builder.switch(60, 0, APP, false);
    builder.at(70, APP, "syscalls/sys_exit_fsync");
    let expected = expect([(Layer::Call, 5 + 10), (Layer::Journal, 5 + 50)]);
    assert_eq!(builder.layers(0, 70), expected);
}

#[test]
fn interrupts_are_a_layer_of_their_own() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_write");
    builder.event(10, 0, APP, Event::IRQ, "irq/irq_handler_entry", &[("name", t("virtio"))]);
    builder.event(12, 0, APP, Event::IRQ, "ext4/ext4_sync_file_enter", &[]);
    builder.event(14, 0, APP, Event::IRQ, "irq/irq_handler_exit", &[]);
    builder.event(14, 0, APP, Event::SOFTIRQ, "irq/softirq_entry", &[("vec", n(4))]);
    builder.event(20, 0, APP, Event::SOFTIRQ, "irq/softirq_exit", &[("vec", n(4))]);
    builder.at(30, APP, "syscalls/sys_exit_write");
    let analysis = builder.analysis(0, 30);
    assert_eq!(layers(&analysis), expect([(Layer::Call, 20), (Layer::Interrupt, 10)]));
    assert_eq!(step(&analysis, "softirq BLOCK"), (1, 6, 6));
}

/// A worker that a completion wakes: the job was queued from the interrupt.
#[test]
fn a_job_leads_back_to_who_queued_it() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.block(2, APP, 0, "bio_queue", (DISK, 8, 8, "WS"));
    builder.block(3, APP, 0, "getrq", (DISK, 8, 8, "WS"));
    builder.block(4, APP, 0, "rq_issue", (DISK, 8, 8, "WS"));
    builder.at(6, APP, "writeback/folio_wait_writeback");
    builder.switch(10, APP, 0, true);
    builder.block(50, 0, Event::SOFTIRQ, "rq_complete", (DISK, 8, 8, "WS"));
    builder.work(52, 0, Event::SOFTIRQ, "queue_work", "ext4_end_io_rsv_work");
    builder.wake(53, 0, Event::SOFTIRQ, WORKER);
    builder.switch(58, 0, WORKER, false);
    builder.work(60, WORKER, 0, "execute_start", "ext4_end_io_rsv_work");
    builder.wake(70, WORKER, 0, APP);
    builder.work(72, WORKER, 0, "execute_end", "ext4_end_io_rsv_work");
    builder.switch(75, WORKER, APP, true);
    builder.at(90, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(0, 90);
    let expected = expect([
        (Layer::Call, 2 + 15),
        (Layer::Block, 4 + 2),
        (Layer::PageCache, 4),
        (Layer::Device, 40),
        // The job waited for its worker 52-60; woken 70-75.
        (Layer::Scheduler, 8 + 5),
        (Layer::FileSystem, 10),
    ]);
    assert_eq!(layers(&analysis), expected);
    // Until it runs again.
    assert_eq!(step(&analysis, "wait for pages to be written").2, 4 + 60 + 5);
    assert_eq!(step(&analysis, "worker: finish writes"), (1, 10, 10));
}

#[test]
fn a_loop_device_is_a_device_whatever_its_worker_does() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.work(5, APP, 0, "queue_work", "loop_rootcg_workfn");
    builder.wake(6, APP, 0, WORKER);
    builder.switch(10, APP, WORKER, true);
    builder.work(12, WORKER, 0, "execute_start", "loop_rootcg_workfn");
    builder.at(20, WORKER, "ext4/ext4_sync_file_enter");
    builder.switch(30, WORKER, 0, true);
    builder.wake(60, JBD2, 0, WORKER);
    builder.switch(62, JBD2, WORKER, true);
    builder.wake(70, WORKER, 0, APP);
    builder.switch(71, WORKER, APP, true);
    builder.at(80, APP, "syscalls/sys_exit_fsync");
    let expected = expect([(Layer::Call, 10 + 9), (Layer::Scheduler, 2 + 1), (Layer::Device, 58)]);
    assert_eq!(builder.layers(0, 80), expected);
}

#[test]
fn limits_are_told_from_the_device() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    // No free request, or the write-back throttle: blocked between bio and request.
    builder.block(5, APP, 0, "bio_queue", (DISK, 8, 8, "WS"));
    builder.switch(7, APP, 0, true);
    builder.wake(27, WORKER, 0, APP);
    builder.switch(27, WORKER, APP, true);
    builder.block(30, APP, 0, "getrq", (DISK, 8, 8, "WS"));
    builder.block(31, APP, 0, "io_start", (DISK, 8, 8, "WS"));
    // A limit of a control group: its worker queues the bio when its time has come.
    builder.switch(40, APP, 0, true);
    builder.work(90, 0, Event::SOFTIRQ, "queue_work", "blk_throtl_dispatch_work_fn");
    builder.switch(92, 0, WORKER, false);
    builder.work(93, WORKER, 0, "execute_start", "blk_throtl_dispatch_work_fn");
    builder.block(100, WORKER, 0, "bio_queue", (DISK, 16, 8, "WS"));
    builder.block(100, WORKER, 0, "getrq", (DISK, 16, 8, "WS"));
    builder.block(101, WORKER, 0, "rq_issue", (DISK, 16, 8, "WS"));
    builder.switch(102, WORKER, 0, true);
    builder.block(150, 0, Event::SOFTIRQ, "rq_complete", (DISK, 16, 8, "WS"));
    builder.wake(150, 0, Event::SOFTIRQ, APP);
    builder.switch(150, 0, APP, false);
    builder.at(160, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(0, 160);
    assert_eq!(step(&analysis, super::rules::HELD).1, 20 + 60);
    assert_eq!(layers(&analysis)[&Layer::Device], 49);
}

#[test]
fn tracing_that_was_off_between_two_operations_is_not_guessed_at() {
    let mut builder = journalled();
    // Off while jbd2 is in the midst of a commit; on again much later.
    builder.at(330, JBD2, "jbd2/jbd2_start_commit");
    builder.at(10_000, APP, "syscalls/sys_exit_write");
    builder.at(10_010, APP, "syscalls/sys_enter_fsync");
    builder.switch(10_020, APP, 0, true);
    builder.wake(10_060, JBD2, 0, APP);
    builder.switch(10_060, JBD2, APP, false);
    builder.at(10_070, APP, "syscalls/sys_exit_fsync");
    let mut traced = builder.traced(10, 325);
    let mut second = traced.operations[0];
    (second.start_ns, second.end_ns) = (10_005, 10_075);
    traced.operations.push(second);
    let analysis = Analysis::of(&traced);
    let row = &analysis.groups[0].rows[1];
    assert_eq!(row.layers.iter().sum::<u64>(), 70);
    // jbd2 ran, but the commit may be over.
    assert_eq!(step(&analysis, "commit").0, 1);
    assert_eq!(row.layers[Layer::Application.index()], 10);
    assert_eq!(row.layers[Layer::Journal.index()], 40);
}

#[test]
fn a_program_is_explained_call_by_call() {
    let mut builder = journalled();
    builder.at(400, APP, "syscalls/sys_enter_write");
    builder.at(410, APP, "syscalls/sys_exit_write");
    builder.at(420, JBD2, "syscalls/sys_enter_write");
    builder.at(430, JBD2, "syscalls/sys_exit_write");
    let mut traced = builder.traced(0, 1);
    traced.operations.clear();
    let analysis = Analysis::of(&traced);
    let classes: Vec<(&str, usize)> = analysis.groups.iter().map(|g| (g.class.as_str(), g.rows.len())).collect();
    assert_eq!(classes, [("fdatasync", 1), ("write", 1)]);
    assert_eq!(analysis.groups[0].rows[0].wall_ns, 315);
    assert_eq!(analysis.groups[0].rows[0].layers[Layer::Device.index()], 200);
    let mut report = Report::new("t", "t");
    present(&[analysis.clone(), analysis], &mut report);
    let text = report.to_text();
    assert!(text.contains("fdatasync") && text.contains("device 63 %"), "{text}");
}

#[test]
fn a_report_has_every_table_and_chart_and_marks_what_is_doubtful() {
    let mut one = journalled().analysis(10, 325);
    one.lost = vec![3, 0];
    let mut report = Report::new("t", "t");
    present(&[one.clone(), one], &mut report);
    let names: Vec<&str> = report.tables.iter().map(|table| table.name.as_str()).collect();
    for name in [
        "operations",
        "layers-us",
        "layers-percent",
        "layers",
        "requests",
        "functions",
        "steps",
        "interference",
        "processes",
        "cpus",
        "events",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    let json = report.to_json();
    assert_eq!(json["tables"]["operations"][0]["sum_percent"]["median"], 100.0);
    assert_eq!(json["tables"]["operations"][0]["lost"], 6);
    assert_eq!(json["tables"]["layers-us"][0]["device"], 0.2);
    // Two runs: a flush and a write each time.
    let requests = json["tables"]["requests"].as_array().unwrap();
    let told: Vec<_> =
        requests.iter().map(|row| (row["request"].as_str(), row["requests_per_operation"].as_f64())).collect();
    assert_eq!(told, [(Some("write"), Some(1.0)), (Some("flush"), Some(1.0))]);
    let issues = json["tables"]["events"].as_array().unwrap().iter().find(|row| row["event"] == "block/block_rq_issue");
    assert_eq!(issues.unwrap()["events_per_run"]["median"], 2.0);
    let charts: Vec<&str> = report.charts.iter().map(|chart| chart.name.as_str()).collect();
    assert!(report.notes[0].contains("6 events LOST"), "{:?}", report.notes);
    let drawn: Vec<String> = report.charts.iter().map(|chart| format!("{chart:?}")).collect();
    let marked: Vec<bool> = drawn.iter().map(|chart| chart.contains("(events lost)")).collect();
    assert_eq!(marked, [true; 5], "each picture says so");
    assert_eq!(charts, ["layers", "calls", "interference", "waterfall-1", "heat-1"]);
    let mut empty = Report::new("t", "t");
    present(&[], &mut empty);
    assert!(empty.warnings[0].contains("no operation"), "{:?}", empty.warnings);
}

const KINDS: &[&str] = &[
    "syscalls/sys_enter_write",
    "syscalls/sys_exit_write",
    "sched/sched_switch",
    "sched/sched_waking",
    "sched/sched_wakeup",
    "block/block_bio_queue",
    "block/block_getrq",
    "block/block_rq_insert",
    "block/block_rq_issue",
    "block/block_rq_requeue",
    "block/block_rq_complete",
    "block/block_io_done",
    "block/block_bio_backmerge",
    "block/block_bio_frontmerge",
    "block/block_split",
    "workqueue/workqueue_queue_work",
    "workqueue/workqueue_execute_start",
    "workqueue/workqueue_execute_end",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "ext4/ext4_sync_file_enter",
    "ext4/ext4_sync_file_exit",
    "jbd2/jbd2_start_commit",
    "jbd2/jbd2_end_commit",
    "writeback/folio_wait_writeback",
    "nobody/knows",
];

/// One event: step in time, CPU, thread, context, kind, and two small numbers for its fields.
type Soup = (u64, u16, i32, u8, usize, i64, i64);

fn soup() -> impl Strategy<Value = Vec<Soup>> {
    let event = (0_u64..5, 0_u16..3, -1_i32..6, 0_u8..4, 0..KINDS.len(), -1_i64..6, -1_i64..4);
    proptest::collection::vec(event, 0..300)
}

fn cooked(soup: Vec<Soup>) -> Trace {
    let mut builder = TraceBuilder::default();
    let mut ns = 0;
    for (step, cpu, tid, context, kind, a, b) in soup {
        ns += step;
        let rwbs = ["FF", "WS", "R", "FWFS", "D", ""][(a + b).rem_euclid(6) as usize];
        let fields = [
            ("dev", n(DISK + (b & 1))),
            ("sector", n(a)),
            ("new_sector", n(b)),
            ("nr_sector", n(b)),
            ("rwbs", t(rwbs)),
            ("prev_state", if b == 0 { t("R+") } else { n(a) }),
            ("next_pid", n(b)),
            ("pid", n(a)),
            ("work", n(b)),
            ("function", t(["loop_x", "blk_throtl_x", "what"][(a & 1) as usize])),
            ("vec", n(a)),
        ];
        builder.event(ns, cpu, tid, context, KINDS[kind], &fields);
    }
    builder.trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_the_events_each_nanosecond_is_given_once(soup in soup(), start in 0_u64..300, long in 0_u64..500, program in any::<bool>()) {
        let mut builder = TraceBuilder::new();
        builder.trace = cooked(soup);
        let mut traced = builder.traced(start, start + long);
        let mut second = traced.operations[0];
        for operation in &mut traced.operations {
            operation.tid = 1;
        }
        (second.tid, second.start_ns, second.end_ns) = (2, start + long + 3, start + 2 * long);
        traced.operations.push(second);
        traced.generator = BTreeSet::from([1, 2]);
        if program {
            traced.operations.clear();
        }
        let analysis = Analysis::of(&traced);
        for group in &analysis.groups {
            for row in &group.rows {
                prop_assert_eq!(row.layers.iter().sum::<u64>(), row.wall_ns);
                prop_assert!(row.in_calls_ns <= row.wall_ns);
            }
            let exclusive: u64 = group.steps.values().map(|tally| tally.exclusive).sum();
            prop_assert_eq!(exclusive, group.rows.iter().map(|row| row.wall_ns).sum::<u64>());
            for tally in group.steps.values() {
                prop_assert!(tally.inclusive >= tally.exclusive || tally.calls > 0);
            }
            for line in &group.median {
                prop_assert!(line.start <= line.end);
            }
        }
        let mut report = Report::new("t", "t");
        present(&[analysis], &mut report);
    }
}
