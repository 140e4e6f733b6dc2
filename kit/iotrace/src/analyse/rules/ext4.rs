//! ext4. Its tracepoints come in pairs for syncs, write-back and mapping; `da_write_begin` and `da_write_end` each
//! stand at the beginning of their function, so that the copy of the data lies between them.

use super::Act::{Clear, Mark, Pop, Push, PushAfter, Wait};
use super::{COPY, Rule, Token};
use crate::analyse::layer::Layer::{FileSystem, Journal, PageCache};

pub const RULES: &[Rule] = &[
    ("ext4/ext4_da_write_begin", Push(Token::Write, PageCache, COPY)),
    ("ext4/ext4_write_begin", Push(Token::Write, PageCache, COPY)),
    ("ext4/ext4_da_write_end", Push(Token::Write, FileSystem, "end the write")),
    ("ext4/ext4_write_end", Push(Token::Write, FileSystem, "end the write")),
    ("ext4/ext4_journalled_write_end", Push(Token::Write, FileSystem, "end the write")),
    ("ext4/ext4_da_reserve_space", Mark(FileSystem, "reserve space")),
    ("ext4/ext4_es_insert_delayed_extent", Clear),
    ("ext4/ext4_es_lookup_extent_enter", Push(Token::Extent, FileSystem, "look up the extent")),
    ("ext4/ext4_es_lookup_extent_exit", Pop(Token::Extent)),
    // With O_DSYNC it follows the write within its call.
    ("ext4/ext4_sync_file_enter", PushAfter(Token::Write, Token::Sync, FileSystem, "sync the file")),
    ("ext4/ext4_sync_file_exit", Pop(Token::Sync)),
    ("ext4/ext4_sync_fs", Push(Token::Sync, FileSystem, "sync the file system")),
    ("ext4/ext4_writepages", Push(Token::Pages, FileSystem, "write pages")),
    ("ext4/ext4_writepages_result", Pop(Token::Pages)),
    ("ext4/ext4_ext_map_blocks_enter", Push(Token::Map, FileSystem, "map and allocate blocks")),
    ("ext4/ext4_ext_map_blocks_exit", Pop(Token::Map)),
    ("ext4/ext4_ind_map_blocks_enter", Push(Token::Map, FileSystem, "map and allocate blocks")),
    ("ext4/ext4_ind_map_blocks_exit", Pop(Token::Map)),
    // Followed by jbd2_handle_start if there is no handle yet; it may wait for room in the journal.
    ("ext4/ext4_journal_start", Wait(Journal, "join a transaction")),
    ("ext4/ext4_journal_start_sb", Wait(Journal, "join a transaction")),
    ("ext4/ext4_journal_start_inode", Wait(Journal, "join a transaction")),
    ("ext4/ext4_journal_start_reserved", Wait(Journal, "join a transaction")),
    ("ext4/ext4_mark_inode_dirty", Mark(FileSystem, "write the inode to its buffer")),
    ("ext4/ext4_fallocate_enter", Push(Token::Space, FileSystem, "fallocate")),
    ("ext4/ext4_fallocate_exit", Pop(Token::Space)),
    ("ext4/ext4_truncate_enter", Push(Token::Space, FileSystem, "truncate")),
    ("ext4/ext4_truncate_exit", Pop(Token::Space)),
    ("ext4/ext4_unlink_enter", Push(Token::Directory, FileSystem, "unlink")),
    ("ext4/ext4_unlink_exit", Pop(Token::Directory)),
    ("ext4/ext4_request_inode", Push(Token::Inode, FileSystem, "allocate an inode")),
    ("ext4/ext4_allocate_inode", Pop(Token::Inode)),
    ("ext4/ext4_read_folio", Mark(FileSystem, "read a page")),
    ("ext4/ext4_fc_commit_start", Push(Token::FastCommit, Journal, "fast commit")),
    ("ext4/ext4_fc_commit_stop", Pop(Token::FastCommit)),
];
