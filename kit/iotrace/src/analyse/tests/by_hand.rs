//! Cases that are easily attributed to the wrong layer, each worked out by hand.

use super::*;

const OTHER_THREAD: i32 = 77;

impl TraceBuilder {
    /// On another CPU.
    fn on(&mut self, cpu: u16, ns: u64, tid: i32, context: u8, kind: &str, fields: &[(&str, Value)]) {
        self.event(ns, cpu, tid, context, kind, fields);
    }

    fn switch_on(&mut self, cpu: u16, ns: u64, from: i32, to: i32) {
        let fields = [("prev_state", n(2)), ("next_pid", n(i64::from(to)))];
        self.on(cpu, ns, from, 0, "sched/sched_switch", &fields);
    }

    fn block_on(&mut self, cpu: u16, ns: u64, tid: i32, context: u8, what: &str, sector: i64) {
        let fields = [("dev", n(DISK)), ("sector", n(sector)), ("nr_sector", n(8)), ("rwbs", t("WS"))];
        self.on(cpu, ns, tid, context, &format!("block/block_{what}"), &fields);
    }
}

/// With `O_DSYNC` the sync is within the call of the write, and not within the write's last step.
#[test]
fn a_sync_within_a_write_is_no_part_of_ending_the_write() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_pwrite64");
    builder.at(2, APP, "ext4/ext4_da_write_begin");
    builder.at(7, APP, "ext4/ext4_da_write_end");
    builder.at(10, APP, "ext4/ext4_sync_file_enter");
    builder.switch(12, APP, 0, true);
    builder.wake(90, JBD2, 0, APP);
    builder.switch(90, JBD2, APP, true);
    builder.at(95, APP, "ext4/ext4_sync_file_exit");
    builder.at(100, APP, "syscalls/sys_exit_pwrite64");
    let analysis = builder.analysis(0, 100);
    assert_eq!(step(&analysis, "end the write"), (1, 3, 3));
    assert_eq!(step(&analysis, "sync the file"), (1, 2 + 5, 85));
    assert_eq!(step(&analysis, "pwrite64"), (1, 2 + 5, 100));
}

/// iomap tells of pages and of direct I/O with the same events. Past the page cache nothing is the page cache's.
#[test]
fn direct_io_has_no_page_cache() {
    for (begin, expected) in [
        (Some("iomap/iomap_dio_rw_begin"), vec![(Layer::Call, 4), (Layer::FileSystem, 32), (Layer::Block, 14)]),
        (None, vec![(Layer::Call, 4), (Layer::PageCache, 14), (Layer::FileSystem, 18), (Layer::Block, 14)]),
    ] {
        let mut builder = TraceBuilder::new();
        builder.at(0, APP, "syscalls/sys_enter_pwrite64");
        builder.at(2, APP, "xfs/xfs_file_direct_write");
        if let Some(begin) = begin {
            builder.at(4, APP, begin);
        }
        builder.at(6, APP, "iomap/iomap_iter");
        builder.at(10, APP, "iomap/iomap_iter_dstmap");
        builder.block(24, APP, 0, "bio_queue", (DISK, 8, 8, "WS"));
        builder.at(38, APP, "iomap/iomap_iter");
        builder.at(44, APP, "iomap/iomap_dio_complete");
        builder.at(48, APP, "syscalls/sys_exit_pwrite64");
        builder.at(50, APP, "syscalls/sys_exit_pwrite64");
        let mut expected: BTreeMap<Layer, u64> = expected.into_iter().collect();
        *expected.entry(Layer::Call).or_default() -= 2;
        expected.insert(Layer::Application, 2);
        assert_eq!(builder.layers(0, 50), expected, "{begin:?}");
    }
}

/// The last `iomap_iter` of a call says that nothing is left to map; what comes after it is the call's.
#[test]
fn a_wait_for_the_pages_of_a_read_is_not_within_the_mapping() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_pread64");
    builder.at(2, APP, "xfs/xfs_file_buffered_read");
    builder.at(4, APP, "iomap/iomap_iter");
    builder.at(6, APP, "iomap/iomap_iter_dstmap");
    builder.at(10, APP, "iomap/iomap_iter");
    builder.block(12, APP, 0, "bio_queue", (DISK, 8, 8, "R"));
    builder.block(13, APP, 0, "getrq", (DISK, 8, 8, "R"));
    builder.block(14, APP, 0, "rq_issue", (DISK, 8, 8, "R"));
    builder.switch(20, APP, 0, true);
    builder.block(70, 0, Event::SOFTIRQ, "rq_complete", (DISK, 8, 8, "R"));
    builder.wake(72, 0, Event::SOFTIRQ, APP);
    builder.switch(75, 0, APP, false);
    builder.at(80, APP, "syscalls/sys_exit_pread64");
    let analysis = builder.analysis(0, 80);
    assert_eq!(step(&analysis, "map the extent"), (2, 2 + 2, 2 + 2));
    assert_eq!(step(&analysis, "buffered read").2, 78);
    let expected = expect([
        (Layer::Call, 2),
        (Layer::PageCache, 4),
        (Layer::FileSystem, 2 + 2 + 2 + 5),
        (Layer::Block, 2 + 6 + 2),
        (Layer::Device, 50),
        (Layer::Scheduler, 3),
    ]);
    assert_eq!(layers(&analysis), expected);
}

/// The block layer's worker hands a flush and then the data to the device, and has to wait for a CPU both times.
#[test]
fn a_worker_without_a_cpu_is_neither_the_block_layers_nor_the_devices() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.at(2, APP, "ext4/ext4_sync_file_enter");
    builder.block(4, APP, 0, "bio_queue", (DISK, 64, 8, "FWS"));
    builder.block(5, APP, 0, "getrq", (DISK, 64, 8, "FWS"));
    builder.block(6, APP, 0, "io_start", (DISK, 64, 8, "FWS"));
    builder.work(6, APP, 0, "queue_work", "blk_mq_requeue_work");
    builder.wake(7, APP, 0, WORKER);
    builder.switch(10, APP, OTHER_THREAD, true);
    builder.switch(60, OTHER_THREAD, WORKER, false);
    builder.work(61, WORKER, 0, "execute_start", "blk_mq_requeue_work");
    builder.block(63, WORKER, 0, "rq_issue", (DISK, 0, 0, "FF"));
    builder.work(64, WORKER, 0, "execute_end", "blk_mq_requeue_work");
    builder.switch(65, WORKER, OTHER_THREAD, true);
    builder.block(100, OTHER_THREAD, Event::SOFTIRQ, "rq_complete", (DISK, -1, 0, "FF"));
    builder.work(101, OTHER_THREAD, Event::SOFTIRQ, "queue_work", "blk_mq_requeue_work");
    builder.wake(102, OTHER_THREAD, Event::SOFTIRQ, WORKER);
    builder.switch(150, OTHER_THREAD, WORKER, false);
    builder.work(151, WORKER, 0, "execute_start", "blk_mq_requeue_work");
    builder.block(153, WORKER, 0, "rq_issue", (DISK, 64, 8, "WS"));
    builder.work(154, WORKER, 0, "execute_end", "blk_mq_requeue_work");
    builder.switch(155, WORKER, OTHER_THREAD, true);
    builder.block(180, OTHER_THREAD, Event::SOFTIRQ, "rq_complete", (DISK, 64, 8, "WS"));
    builder.wake(181, OTHER_THREAD, Event::SOFTIRQ, APP);
    builder.switch(190, OTHER_THREAD, APP, false);
    builder.at(200, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(0, 200);
    let expected = expect([
        (Layer::Call, 2),
        (Layer::FileSystem, 2 + 4 + 10),
        // 4-6 it submits; 61-63, 100-101, 151-153 queued while a worker is at it; 180-181 completion.
        (Layer::Block, 2 + 2 + 1 + 2 + 1),
        (Layer::Device, (100 - 63) + (180 - 153)),
        // The worker's wait for a CPU, twice, and the thread's own.
        (Layer::Scheduler, (61 - 10) + (151 - 101) + (190 - 181)),
    ]);
    assert_eq!(layers(&analysis), expected);
}

/// A journal's record is flushed before and after it.
#[test]
fn two_flushes_of_one_request_are_two_calls() {
    let mut builder = TraceBuilder::new();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.block(4, APP, 0, "bio_queue", (DISK, 64, 8, "FWFS"));
    builder.block(5, APP, 0, "getrq", (DISK, 64, 8, "FWFS"));
    builder.block(8, APP, 0, "rq_issue", (DISK, 0, 0, "FF"));
    builder.switch(10, APP, 0, true);
    builder.block(40, 0, Event::SOFTIRQ, "rq_complete", (DISK, -1, 0, "FF"));
    builder.block(42, 0, Event::SOFTIRQ, "rq_issue", (DISK, 64, 8, "WFS"));
    builder.block(50, 0, Event::SOFTIRQ, "rq_complete", (DISK, 64, 8, "WFS"));
    builder.block(52, 0, Event::SOFTIRQ, "rq_issue", (DISK, 0, 0, "FF"));
    builder.block(72, 0, Event::SOFTIRQ, "rq_complete", (DISK, -1, 0, "FF"));
    builder.block(72, 0, Event::SOFTIRQ, "rq_complete", (DISK, 64, 0, "WFS"));
    builder.wake(72, 0, Event::SOFTIRQ, APP);
    builder.switch(72, 0, APP, false);
    builder.at(80, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(0, 80);
    assert_eq!(step(&analysis, "flush"), (2, 30 + 20, 30 + 20));
    let (_, flush) = analysis.groups[0].steps.iter().find(|(step, _)| &*step.name == "flush").unwrap();
    assert_eq!((flush.per_call.percentile(0.0), flush.per_call.percentile(1.0)), (20, 30));
    // As the device saw them: the first began while the thread still ran.
    let requests = &analysis.groups[0].requests;
    assert_eq!((requests[&Kind::Flush].count, requests[&Kind::Flush].served.sum()), (2, 32 + 20));
    let write = &requests[&Kind::Write];
    assert_eq!((write.count, write.served.sum(), write.before.sum()), (1, 8, 42 - 4));
}

/// A lock has no event. Its holder had to wait for the device itself.
#[test]
fn a_wait_for_a_lock_is_what_its_holder_did() {
    let mut builder = TraceBuilder::new();
    builder.on(1, 0, OTHER_THREAD, 0, "ext4/ext4_sync_file_enter", &[]);
    builder.at(0, APP, "syscalls/sys_enter_write");
    builder.at(2, APP, "ext4/ext4_da_write_begin");
    builder.block_on(1, 4, OTHER_THREAD, 0, "bio_queue", 8);
    builder.block_on(1, 5, OTHER_THREAD, 0, "getrq", 8);
    builder.switch(5, APP, 0, true);
    builder.block_on(1, 6, OTHER_THREAD, 0, "rq_issue", 8);
    builder.switch_on(1, 8, OTHER_THREAD, 0);
    builder.block_on(1, 50, 0, Event::SOFTIRQ, "rq_complete", 8);
    builder.on(1, 51, 0, Event::SOFTIRQ, "sched/sched_waking", &[("pid", n(i64::from(OTHER_THREAD)))]);
    builder.switch_on(1, 53, 0, OTHER_THREAD);
    builder.on(1, 60, OTHER_THREAD, 0, "sched/sched_waking", &[("pid", n(i64::from(APP)))]);
    builder.switch(61, 0, APP, false);
    builder.at(70, APP, "syscalls/sys_exit_write");
    let analysis = builder.analysis(0, 70);
    let expected = expect([
        (Layer::Call, 2),
        (Layer::PageCache, 3 + 9),
        // Of the holder: 5-8 it submits, 50-51 completion.
        (Layer::Block, 1 + 2 + 1),
        (Layer::Device, 50 - 8),
        // It gets its CPU at 53, and the waiter at 61.
        (Layer::Scheduler, 2 + 1),
        (Layer::FileSystem, 60 - 53),
    ]);
    assert_eq!(layers(&analysis), expected);
    // All of it is within the step that wanted the lock.
    assert_eq!(step(&analysis, "get the page and copy").2, 68);
}

/// Another thread's sync began the commit; this one comes to it late and waits for its end alone.
#[test]
fn of_a_commit_under_way_only_the_rest_counts() {
    let mut builder = TraceBuilder::new();
    builder.at(50, JBD2, "jbd2/jbd2_start_commit");
    builder.block(58, JBD2, 0, "bio_queue", (DISK, 8, 8, "WS"));
    builder.block(59, JBD2, 0, "getrq", (DISK, 8, 8, "WS"));
    builder.block(60, JBD2, 0, "rq_issue", (DISK, 8, 8, "WS"));
    builder.switch(70, JBD2, APP, true);
    builder.at(100, APP, "syscalls/sys_enter_fsync");
    builder.at(104, APP, "ext4/ext4_sync_file_enter");
    builder.switch(110, APP, 0, true);
    builder.block(200, 0, Event::SOFTIRQ, "rq_complete", (DISK, 8, 8, "WS"));
    builder.wake(201, 0, Event::SOFTIRQ, JBD2);
    builder.switch(203, 0, JBD2, false);
    builder.wake(205, JBD2, 0, APP);
    builder.switch(207, JBD2, APP, true);
    builder.at(209, APP, "ext4/ext4_sync_file_exit");
    builder.at(210, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(100, 210);
    let expected = expect([
        (Layer::Call, 4 + 1),
        (Layer::FileSystem, 6 + 2),
        (Layer::Journal, 2),
        (Layer::Block, 1),
        (Layer::Device, 200 - 110),
        (Layer::Scheduler, 2 + 2),
    ]);
    assert_eq!(layers(&analysis), expected);
    assert_eq!(step(&analysis, "commit").2, 205 - 110);
    // The request is not the operation's: it was issued before.
    assert!(analysis.groups[0].requests.is_empty());
}

/// Who takes a lock and then waits for a page was not kept from the lock.
#[test]
fn a_wait_behind_a_lock_is_not_for_the_lock() {
    let told = |by_holder: bool| {
        let mut builder = TraceBuilder::new();
        builder.at(0, APP, "syscalls/sys_enter_pread64");
        builder.at(2, APP, "xfs/xfs_file_buffered_read");
        builder.at(4, APP, "xfs/xfs_ilock");
        builder.block_on(1, 5, OTHER_THREAD, 0, "getrq", 8);
        builder.block_on(1, 6, OTHER_THREAD, 0, "rq_issue", 8);
        builder.switch(10, APP, 0, true);
        if by_holder {
            builder.on(1, 60, OTHER_THREAD, 0, "sched/sched_waking", &[("pid", n(i64::from(APP)))]);
        } else {
            builder.switch_on(1, 12, OTHER_THREAD, 0);
            builder.block_on(1, 60, 0, Event::SOFTIRQ, "rq_complete", 8);
            builder.on(1, 60, 0, Event::SOFTIRQ, "sched/sched_waking", &[("pid", n(i64::from(APP)))]);
        }
        builder.switch(61, 0, APP, false);
        builder.at(70, APP, "syscalls/sys_exit_pread64");
        let analysis = builder.analysis(0, 70);
        (step(&analysis, "lock the inode").2, layers(&analysis).get(&Layer::Device).copied())
    };
    // 4-10 it tries; what the holder did meanwhile, to its running again.
    assert_eq!(told(true), (6 + 51, None));
    assert_eq!(told(false), (6, Some(50)));
}

/// `--scope device` has system calls and requests alone: no one knows who waits, but the device is not guessed at.
#[test]
fn without_switches_a_call_is_the_device_and_the_rest() {
    let mut builder = TraceBuilder::new();
    builder.trace.kinds.clear();
    builder.at(0, APP, "syscalls/sys_enter_fsync");
    builder.block(10, APP, 0, "rq_issue", (DISK, 8, 8, "WS"));
    builder.block(30, WORKER, 0, "rq_complete", (DISK, 8, 8, "WS"));
    builder.block(35, JBD2, 0, "rq_issue", (DISK, 0, 0, "FF"));
    builder.block(80, 0, Event::SOFTIRQ, "rq_complete", (DISK, -1, 0, "FF"));
    builder.at(90, APP, "syscalls/sys_exit_fsync");
    let analysis = builder.analysis(0, 100);
    let expected = expect([(Layer::Call, 10 + 5 + 10), (Layer::Device, 20 + 45), (Layer::Application, 10)]);
    assert_eq!(layers(&analysis), expected);
    assert_eq!((step(&analysis, "write"), step(&analysis, "flush")), ((1, 20, 20), (1, 45, 45)));
}

/// The device has one request of somebody else before it: its time, and not the queue's.
#[test]
fn a_request_behind_anothers_waits_for_the_device() {
    let mut builder = TraceBuilder::new();
    builder.block_on(1, 1, OTHER_THREAD, 0, "getrq", 80);
    builder.block_on(1, 2, OTHER_THREAD, 0, "rq_issue", 80);
    builder.at(10, APP, "syscalls/sys_enter_pread64");
    builder.block(12, APP, 0, "bio_queue", (DISK, 8, 8, "R"));
    builder.block(13, APP, 0, "getrq", (DISK, 8, 8, "R"));
    builder.block(14, APP, 0, "rq_insert", (DISK, 8, 8, "R"));
    builder.switch(15, APP, 0, true);
    builder.block_on(1, 60, 0, Event::SOFTIRQ, "rq_complete", 80);
    builder.block(64, 0, Event::SOFTIRQ, "rq_issue", (DISK, 8, 8, "R"));
    builder.block(90, 0, Event::SOFTIRQ, "rq_complete", (DISK, 8, 8, "R"));
    builder.wake(90, 0, Event::SOFTIRQ, APP);
    builder.switch(90, 0, APP, false);
    builder.at(95, APP, "syscalls/sys_exit_pread64");
    let analysis = builder.analysis(10, 95);
    assert_eq!(step(&analysis, "busy with earlier requests"), (1, 60 - 15, 60 - 15));
    assert_eq!(step(&analysis, "request queued"), (1, 4, 4));
    let expected = expect([(Layer::Call, 2 + 5), (Layer::Block, 3 + 4), (Layer::Device, 45 + 26)]);
    assert_eq!(layers(&analysis), expected);
}
