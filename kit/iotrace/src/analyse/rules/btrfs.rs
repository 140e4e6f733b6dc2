//! btrfs. Most of its tracepoints stand alone; `btrfs_transaction_commit` comes at the end of a commit and says nothing
//! of its beginning.

use super::Act::{Clear, Mark, Pop, Push, PushAfter, Wait};
use super::{Rule, Token};
use crate::analyse::layer::Layer::{FileSystem, Journal};

pub const RULES: &[Rule] = &[
    ("btrfs/btrfs_sync_file", Push(Token::Sync, FileSystem, "sync the file")),
    ("btrfs/btrfs_sync_fs", Push(Token::Sync, FileSystem, "sync the file system")),
    ("btrfs/btrfs_space_reservation", Mark(FileSystem, "reserve space")),
    ("btrfs/extent_writepage", Push(Token::Pages, FileSystem, "write pages")),
    ("btrfs/btrfs_find_free_extent", Push(Token::Map, FileSystem, "allocate an extent")),
    ("btrfs/find_free_extent", Push(Token::Map, FileSystem, "allocate an extent")),
    ("btrfs/btrfs_reserve_extent", Pop(Token::Map)),
    ("btrfs/btrfs_ordered_extent_add", Mark(FileSystem, "add the ordered extent")),
    ("btrfs/btrfs_ordered_extent_start", Wait(FileSystem, "wait for the ordered extent")),
    // From here on a sync waits for its data and writes the log tree, its root and the superblock.
    ("btrfs/btrfs_ordered_extent_lookup_for_logging", PushAfter(Token::Pages, Token::Log, Journal, "log the file")),
    // Back from the page cache: trees of the file system, or the log's.
    ("btrfs/btrfs_tree_lock", Clear),
    ("btrfs/btrfs_tree_read_lock", Clear),
    ("btrfs/btrfs_cow_block", Clear),
    ("btrfs/btrfs_finish_ordered_extent", Mark(FileSystem, "finish the ordered extent")),
    ("btrfs/btrfs_flush_space", Wait(FileSystem, "make room")),
    ("btrfs/run_delayed_ref_head", Mark(Journal, "delayed references")),
    ("btrfs/run_delayed_tree_ref", Mark(Journal, "delayed references")),
    ("btrfs/run_delayed_data_ref", Mark(Journal, "delayed references")),
    ("btrfs/btrfs_transaction_commit", Mark(Journal, "end of a transaction's commit")),
];
