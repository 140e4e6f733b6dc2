//! What kernel workers work for, by their function or, where the trace has addresses alone, by their queue; and what
//! kernel threads do between their spans.

use crate::analyse::layer::Layer;

/// By the beginning of the function's name. The first that fits.
const FUNCTIONS: &[(&str, Layer, &str)] = &[
    ("loop_", Layer::Device, "loop device"),
    ("lo_", Layer::Device, "loop device"),
    ("nbd_", Layer::Device, "network block device"),
    ("kcryptd", Layer::Device, "dm-crypt"),
    ("dm_", Layer::Device, "device mapper"),
    ("nvme_", Layer::Device, "driver's worker"),
    ("scsi_", Layer::Device, "driver's worker"),
    ("virtblk_", Layer::Device, "driver's worker"),
    ("blk_throtl", Layer::Block, super::HELD),
    ("blk_", Layer::Block, "block layer's worker"),
    ("wb_", Layer::PageCache, "flusher"),
    ("ext4_end_io", Layer::FileSystem, "worker: finish writes"),
    ("ext4_", Layer::FileSystem, "worker of ext4"),
    ("xlog_cil", Layer::Journal, "worker: checkpoint (CIL)"),
    ("xlog_", Layer::Journal, "worker: finish the log buffer"),
    ("xfs_end_io", Layer::FileSystem, "worker: finish writes"),
    ("xfs_buf_ioend", Layer::FileSystem, "worker: finish metadata"),
    ("xfs_log", Layer::Journal, "worker of the log"),
    ("xfs_", Layer::FileSystem, "worker of XFS"),
    ("iomap_dio", Layer::FileSystem, "worker: finish direct I/O"),
    ("iomap_", Layer::FileSystem, "worker: finish writes"),
    ("dio_aio", Layer::FileSystem, "worker: finish direct I/O"),
    ("simple_end_io", Layer::FileSystem, "worker: finish writes"),
    ("end_bbio", Layer::FileSystem, "worker: finish writes"),
    ("btrfs_", Layer::FileSystem, "worker of btrfs"),
    ("wq_barrier", Layer::Scheduler, "worker: barrier"),
];

/// By the beginning of the work queue's name.
const QUEUES: &[(&str, Layer, &str)] = &[
    ("loop", Layer::Device, "loop device"),
    ("kcryptd", Layer::Device, "dm-crypt"),
    ("kthrotld", Layer::Block, super::HELD),
    ("kblockd", Layer::Block, "block layer's worker"),
    ("writeback", Layer::PageCache, "flusher"),
    ("ext4-rsv", Layer::FileSystem, "worker: finish writes"),
    ("xfs-cil", Layer::Journal, "worker: checkpoint (CIL)"),
    ("xfs-log", Layer::Journal, "worker: finish the log buffer"),
    ("xfs-conv", Layer::FileSystem, "worker: finish writes"),
    ("xfs-buf", Layer::FileSystem, "worker: finish metadata"),
    ("xfs", Layer::FileSystem, "worker of XFS"),
    ("dio", Layer::FileSystem, "worker: finish direct I/O"),
    ("btrfs", Layer::FileSystem, "worker of btrfs"),
];

/// Layer and step of a job.
pub fn job(function: Option<&str>, queue: Option<&str>) -> (Layer, String) {
    let known = |table: &'static [(&str, Layer, &str)], name: Option<&str>| {
        let name = name?;
        table.iter().find(|(start, ..)| name.starts_with(start)).map(|(_, layer, step)| (*layer, (*step).to_owned()))
    };
    let unknown = || {
        let name = function.or(queue).unwrap_or("of unknown purpose");
        (Layer::Unattributed, format!("kernel worker {name}"))
    };
    known(FUNCTIONS, function).or_else(|| known(QUEUES, queue)).unwrap_or_else(unknown)
}

/// By the beginning of a thread's name: what it is at outside of all its spans.
const THREADS: &[(&str, Layer, &str)] = &[
    ("kworker/", Layer::Scheduler, "kernel worker between two jobs"),
    ("jbd2/", Layer::Journal, "journal thread"),
    ("xfsaild/", Layer::Journal, "thread that empties the log"),
    ("btrfs-transacti", Layer::Journal, "transaction thread"),
    ("btrfs-", Layer::FileSystem, "thread of btrfs"),
    ("ksoftirqd/", Layer::Interrupt, "deferred interrupts"),
    ("rcu", Layer::Scheduler, "waiting for all CPUs (RCU)"),
    ("kswapd", Layer::PageCache, "reclaim"),
    ("loop", Layer::Device, "loop device"),
    ("iou-", Layer::Call, "io_uring worker"),
    ("migration/", Layer::Scheduler, "moved to another CPU"),
];

pub fn thread(name: Option<&str>) -> (Layer, &'static str) {
    let found = name.and_then(|name| THREADS.iter().find(|(start, ..)| name.starts_with(start)));
    found.map_or((Layer::Application, "another thread's code"), |(_, layer, step)| (*layer, *step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_come_before_queues() {
        assert_eq!(job(Some("loop_rootcg_workfn"), None).0, Layer::Device);
        assert_eq!(job(None, Some("loop3")).0, Layer::Device);
        assert_eq!(job(Some("xlog_ioend_work"), Some("xfs-buf/vda")).0, Layer::Journal);
        assert_eq!(job(Some("vmstat_update"), Some("mm_percpu_wq")).0, Layer::Unattributed);
        assert_eq!(job(None, None).1, "kernel worker of unknown purpose");
        assert_eq!(thread(Some("jbd2/vda-8")).0, Layer::Journal);
        assert_eq!(thread(None).0, Layer::Application);
    }
}
