//! The events of each scope, the fields kept of them, and the filters that the kernel applies.
//!
//! Always an explicit list: `all` is everything in a tracing system, the other scopes are what the analysis reads.

use clap::ValueEnum;

/// Events to trace. Each holds what those before it hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, ValueEnum)]
pub enum Scope {
    /// System calls on files, and requests to the device and back.
    Device,
    /// All of the block layer, and who runs and wakes whom.
    Block,
    /// The file system, its journal, write-back and the page cache.
    Fs,
    /// Every event of these systems, of all devices and processes, and interrupts: to see what that costs.
    All,
}

impl Scope {
    pub const EVERY: [Scope; 4] = [Scope::Device, Scope::Block, Scope::Fs, Scope::All];

    pub fn name(self) -> &'static str {
        match self {
            Scope::Device => "device",
            Scope::Block => "block",
            Scope::Fs => "fs",
            Scope::All => "all",
        }
    }
}

/// A file system that has events of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub const EVERY: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

    /// By the type that a mount has; none for one that the tracer knows nothing of.
    pub fn of_type(name: &str) -> Option<FileSystem> {
        match name {
            "ext4" | "ext3" | "ext2" => Some(FileSystem::Ext4),
            "xfs" => Some(FileSystem::Xfs),
            "btrfs" => Some(FileSystem::Btrfs),
            _ => None,
        }
    }

    fn systems(self) -> &'static [&'static str] {
        match self {
            FileSystem::Ext4 => &["ext4", "jbd2"],
            FileSystem::Xfs => &["xfs"],
            FileSystem::Btrfs => &["btrfs"],
        }
    }
}

/// System calls that touch files; `enter` and `exit` of each. Not every architecture has all.
const CALLS: &str = "
    read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 fsync fdatasync sync_file_range sync
    syncfs msync openat close creat mkdir mkdirat rename renameat renameat2 link linkat symlink symlinkat unlink
    unlinkat rmdir ftruncate truncate fallocate copy_file_range sendfile64 splice io_uring_enter io_submit
    io_getevents io_pgetevents
";
/// Calls that only new kernels or some machines have: not missed.
const CALLS_RARE: &str = "
    creat mkdir rename link symlink unlink rmdir io_pgetevents
";

const DEVICE: &str = "
    block/block_rq_issue block/block_rq_complete block/block_rq_requeue block/block_rq_error
";

const BLOCK: &str = "
    block/block_bio_queue block/block_bio_complete block/block_bio_remap block/block_bio_backmerge
    block/block_bio_frontmerge block/block_split block/block_getrq block/block_rq_insert block/block_rq_merge
    block/block_plug block/block_unplug block/block_io_start block/block_io_done sched/sched_switch
    sched/sched_waking sched/sched_wakeup sched/sched_process_fork sched/sched_process_exit
    irq/irq_handler_entry irq/irq_handler_exit irq/softirq_entry irq/softirq_exit
";

const FS_COMMON: &str = "
    writeback/writeback_queue writeback/writeback_exec writeback/writeback_start writeback/writeback_written
    writeback/writeback_wait writeback/writeback_pages_written writeback/writeback_single_inode_start
    writeback/writeback_single_inode writeback/writeback_write_inode_start writeback/writeback_write_inode
    writeback/writeback_dirty_folio writeback/folio_wait_writeback writeback/balance_dirty_pages
    writeback/writeback_mark_inode_dirty writeback/writeback_dirty_inode_start writeback/writeback_dirty_inode
    writeback/wbc_writepage filemap/mm_filemap_add_to_page_cache filemap/mm_filemap_get_pages
    filemap/mm_filemap_delete_from_page_cache filemap/file_check_and_advance_wb_err workqueue/workqueue_queue_work
    workqueue/workqueue_execute_start workqueue/workqueue_execute_end io_uring/io_uring_submit_req
    io_uring/io_uring_queue_async_work io_uring/io_uring_complete io_uring/io_uring_cqring_wait
";

const EXT4: &str = "
    ext4/ext4_da_write_begin ext4/ext4_da_write_end ext4/ext4_write_begin ext4/ext4_write_end
    ext4/ext4_journalled_write_end ext4/ext4_sync_file_enter ext4/ext4_sync_file_exit ext4/ext4_writepages
    ext4/ext4_writepages_result ext4/ext4_da_write_pages ext4/ext4_da_write_pages_extent
    ext4/ext4_da_write_folios_start ext4/ext4_da_write_folios_end ext4/ext4_alloc_da_blocks
    ext4/ext4_journal_start_inode ext4/ext4_journal_start_sb ext4/ext4_journal_start_reserved
    ext4/ext4_journal_start ext4/ext4_mark_inode_dirty  ext4/ext4_da_update_reserve_space
    ext4/ext4_ext_map_blocks_enter ext4/ext4_ext_map_blocks_exit ext4/ext4_ext_handle_unwritten_extents
    ext4/ext4_ext_convert_to_initialized_enter ext4/ext4_ext_convert_to_initialized_fastpath
    ext4/ext4_request_blocks ext4/ext4_allocate_blocks ext4/ext4_mballoc_alloc ext4/ext4_mballoc_prealloc
    ext4/ext4_mb_new_inode_pa ext4/ext4_free_blocks ext4/ext4_request_inode ext4/ext4_allocate_inode
    ext4/ext4_free_inode ext4/ext4_fallocate_enter ext4/ext4_fallocate_exit ext4/ext4_truncate_enter
    ext4/ext4_truncate_exit ext4/ext4_unlink_enter ext4/ext4_unlink_exit ext4/ext4_read_folio
    ext4/ext4_other_inode_update_time ext4/ext4_fc_commit_start ext4/ext4_fc_commit_stop ext4/ext4_fc_track_range
    ext4/ext4_fc_track_inode ext4/ext4_fc_stats ext4/ext4_sync_fs jbd2/jbd2_start_commit jbd2/jbd2_commit_locking
    jbd2/jbd2_commit_flushing jbd2/jbd2_commit_logging jbd2/jbd2_drop_transaction jbd2/jbd2_end_commit
    jbd2/jbd2_run_stats jbd2/jbd2_handle_start jbd2/jbd2_handle_extend jbd2/jbd2_handle_restart
    jbd2/jbd2_handle_stats jbd2/jbd2_lock_buffer_stall jbd2/jbd2_submit_inode_data jbd2/jbd2_checkpoint
    jbd2/jbd2_update_log_tail jbd2/jbd2_write_superblock
";
/// Of older kernels, or of newer ones: not missed.
const EXT4_RARE: &str = "
    ext4/ext4_da_write_pages ext4/ext4_da_write_folios_start ext4/ext4_da_write_folios_end ext4/ext4_journal_start
    ext4/ext4_journal_start_sb ext4/ext4_journal_start_inode
";

const XFS: &str = "
    xfs/xfs_file_buffered_write xfs/xfs_file_direct_write xfs/xfs_file_buffered_read xfs/xfs_file_direct_read
    xfs/xfs_file_fsync xfs/xfs_dir_fsync xfs/xfs_log_force xfs/xfs_log_reserve xfs/xfs_log_reserve_exit
    xfs/xfs_log_regrant xfs/xfs_log_regrant_exit xfs/xfs_log_grant_sleep xfs/xfs_log_grant_wake xfs/xfs_log_cil_wait
    xfs/xfs_log_assign_tail_lsn xfs/xfs_trans_alloc xfs/xfs_trans_commit xfs/xfs_trans_cancel xfs/xfs_trans_roll
    xfs/xfs_buf_submit xfs/xfs_buf_iodone xfs/xfs_buf_iodone_async xfs/xfs_buf_iowait xfs/xfs_buf_iowait_done
    xfs/xfs_buf_lock xfs/xfs_buf_lock_done xfs/xfs_buf_read xfs/xfs_ilock xfs/xfs_iunlock xfs/xfs_inode_pin
    xfs/xfs_inode_unpin xfs/xfs_inode_unpin_nowait xfs/xfs_iomap_found xfs/xfs_iomap_alloc
    xfs/xfs_iomap_prealloc_size xfs/xfs_map_blocks_found xfs/xfs_map_blocks_alloc xfs/xfs_unwritten_convert
    xfs/xfs_end_io_direct_write xfs/xfs_setfilesize xfs/xfs_update_time xfs/xfs_zero_eof xfs/xfs_create
    xfs/xfs_rename xfs/xfs_remove xfs/xlog_iclog_activate xfs/xlog_iclog_clean xfs/xlog_iclog_callbacks_start
    xfs/xlog_iclog_callbacks_done xfs/xlog_iclog_force xfs/xlog_iclog_force_lsn xfs/xlog_iclog_get_space
    xfs/xlog_iclog_release xfs/xlog_iclog_switch xfs/xlog_iclog_sync xfs/xlog_iclog_sync_done xfs/xlog_iclog_syncing
    xfs/xlog_iclog_wait_on xfs/xlog_iclog_write xfs/xfs_trans_free
";
const BTRFS: &str = "
    btrfs/btrfs_sync_file btrfs/btrfs_sync_fs btrfs/btrfs_transaction_commit btrfs/btrfs_get_extent
    btrfs/btrfs_ordered_extent_add btrfs/btrfs_ordered_extent_start btrfs/btrfs_ordered_extent_put
    btrfs/btrfs_ordered_extent_remove btrfs/btrfs_ordered_extent_mark_finished btrfs/btrfs_finish_ordered_extent
    btrfs/extent_writepage btrfs/btrfs_writepage_end_io_hook btrfs/btrfs_work_queued btrfs/btrfs_work_sched
    btrfs/btrfs_ordered_sched btrfs/btrfs_all_work_done btrfs/btrfs_cow_block btrfs/btrfs_reserve_extent
    btrfs/find_free_extent btrfs/btrfs_find_free_extent btrfs/btrfs_reserved_extent_alloc
    btrfs/btrfs_space_reservation btrfs/btrfs_flush_space btrfs/btrfs_tree_lock btrfs/btrfs_tree_read_lock
    btrfs/run_delayed_ref_head btrfs/run_delayed_tree_ref btrfs/run_delayed_data_ref btrfs/btrfs_inode_request
    btrfs/btrfs_ordered_extent_lookup_for_logging
";
const BTRFS_RARE: &str = "
    btrfs/find_free_extent btrfs/btrfs_find_free_extent btrfs/btrfs_inode_request
    btrfs/btrfs_ordered_extent_lookup_for_logging
";

const IOMAP: &str = "
    iomap/iomap_iter iomap/iomap_iter_dstmap iomap/iomap_iter_srcmap iomap/iomap_writeback_folio
    iomap/iomap_writepage iomap/iomap_add_to_ioend iomap/iomap_dio_rw_begin iomap/iomap_dio_rw_queued
    iomap/iomap_dio_complete iomap/iomap_readahead iomap/iomap_readpage
";
const IOMAP_RARE: &str = "
    iomap/iomap_writeback_folio iomap/iomap_writepage iomap/iomap_add_to_ioend
";

/// Systems that `all` switches on as a whole.
const ALL_SYSTEMS: &[&str] = &["block", "writeback", "filemap", "workqueue", "iomap", "io_uring", "sched", "irq"];

/// Names of fields that are kept, wherever they occur.
const FIELDS: &str = "
    dev sector nr_sector bytes rwbs old_dev old_sector new_sector nr_rq error ino pos offset len size count copied
    datasync ret fd args0 args1 args2 id prev_pid next_pid prev_state prev_comm next_comm pid comm target_cpu
    parent_pid child_pid child_comm transaction tid sync_commit head lblk pblk m_lblk m_len m_flags flags mflags
    name sb_dev nr_pages reason sync_mode work function workqueue index pfn s_dev i_ino lsn lock_flags bno nblks
    file_offset start root_objectid generation bytenr num_bytes normal_work wq req ctx opcode op res user_data
    done_before wait request_delay running locked flushing logging handle_count blocks blocks_logged interval sync
    requested_blocks dirtied_blocks type_ type line_no range_start range_end nr_to_write wrote pages_written result
    irq vec pause disk_bytenr key_objectid block state refcount func length status order op_str
";

/// The names of the fields that are kept.
pub fn fields() -> Vec<&'static str> {
    FIELDS.split_whitespace().collect()
}

/// What is to be traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// `system/name`, that a kernel should have.
    pub events: Vec<String>,
    /// Of these not each kernel has every one: not said to be missing when they are.
    pub rare: Vec<String>,
    /// All that these have.
    pub systems: Vec<&'static str>,
}

/// Events of a scope on file systems of these types. System calls apart: see [`calls`].
pub fn events(scope: Scope, file_systems: &[FileSystem]) -> Choice {
    let mut lists = vec![DEVICE];
    let (mut rare, mut systems) = (Vec::new(), Vec::new());
    if scope >= Scope::Block {
        lists.push(BLOCK);
    }
    if scope >= Scope::Fs {
        lists.push(FS_COMMON);
        for file_system in file_systems {
            let (list, may_miss) = match file_system {
                FileSystem::Ext4 => (EXT4, EXT4_RARE),
                FileSystem::Xfs => (XFS, ""),
                FileSystem::Btrfs => (BTRFS, BTRFS_RARE),
            };
            lists.push(list);
            rare.push(may_miss);
            // ext4 goes through iomap for direct I/O only, from 5.5 on.
            lists.push(IOMAP);
            rare.push(IOMAP_RARE);
        }
    }
    if scope == Scope::All {
        systems.extend(ALL_SYSTEMS);
        systems.extend(file_systems.iter().flat_map(|file_system| file_system.systems()));
    }
    let words = |lists: &[&str]| lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect();
    let mut events: Vec<String> = words(&lists);
    events.sort_unstable();
    events.dedup();
    Choice { events, rare: words(&rare), systems }
}

/// The system calls on files.
pub fn calls() -> Choice {
    let both = |name: &str| [format!("syscalls/sys_enter_{name}"), format!("syscalls/sys_exit_{name}")];
    Choice {
        events: CALLS.split_whitespace().flat_map(both).collect(),
        rare: CALLS_RARE.split_whitespace().flat_map(both).collect(),
        systems: Vec::new(),
    }
}

/// The kernel's filter for an event with these fields, so that other devices' events do not fill the buffer. None: all
/// of them. Only where a field means the device. `is_anonymous`: the file system has a number of its own that is not
/// its device's, as btrfs.
pub fn device_filter(system: &str, fields: &[String], devices: &[u32], is_anonymous: bool) -> Option<String> {
    let has_device = match system {
        "block" | "ext4" | "jbd2" | "xfs" => true,
        "iomap" | "filemap" => !is_anonymous,
        _ => false,
    };
    let field = ["dev", "s_dev"].into_iter().find(|name| fields.iter().any(|field| field == name))?;
    if !has_device || devices.is_empty() {
        return None;
    }
    let each: Vec<String> = devices.iter().map(|device| format!("{field} == {device}")).collect();
    Some(each.join(" || "))
}

/// The filter for system calls of these threads; None for too many of them (the filter is a program of bounded length).
pub fn thread_filter(threads: &[i32]) -> Option<String> {
    const THREADS_MAX: usize = 32;
    if threads.is_empty() || threads.len() > THREADS_MAX {
        return None;
    }
    let each: Vec<String> = threads.iter().map(|tid| format!("common_pid == {tid}")).collect();
    Some(each.join(" || "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_grow_and_name_each_event_once() {
        let mut last = 0;
        for scope in Scope::EVERY {
            let choice = events(scope, &FileSystem::EVERY);
            assert!(choice.events.len() >= last, "{scope:?}");
            last = choice.events.len();
            let mut once = choice.events.clone();
            once.dedup();
            assert_eq!(once, choice.events);
            assert_eq!(choice.systems.is_empty(), scope != Scope::All);
        }
        assert!(events(Scope::Fs, &[FileSystem::Xfs]).events.iter().all(|name| !name.starts_with("ext4/")));
        let mut fields = fields();
        fields.sort_unstable();
        fields.dedup();
        assert_eq!(fields.len(), super::fields().len());
    }

    #[test]
    fn filters_by_device_and_thread() {
        let fields = ["dev".to_owned(), "sector".to_owned()];
        assert_eq!(device_filter("block", &fields, &[5, 9], true).as_deref(), Some("dev == 5 || dev == 9"));
        assert_eq!(device_filter("block", &fields, &[], false), None);
        assert_eq!(device_filter("block", &fields[1..], &[5], false), None);
        // There `dev` may be the number of btrfs itself.
        assert_eq!(device_filter("iomap", &fields, &[5], true), None);
        assert_eq!(thread_filter(&[7, 8]).as_deref(), Some("common_pid == 7 || common_pid == 8"));
        assert_eq!(thread_filter(&[1; 33]), None);
    }
}
