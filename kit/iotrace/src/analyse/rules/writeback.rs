//! Page cache and write-back.

use super::Act::{Mark, Pop, Push, Wait, WaitAfter};
use super::{Rule, Token};
use crate::analyse::layer::Layer::{FileSystem, PageCache};

pub const RULES: &[Rule] = &[
    ("filemap/mm_filemap_add_to_page_cache", Mark(PageCache, "add a page and fill it")),
    // It stands where they have been found, and waited for.
    ("filemap/mm_filemap_get_pages", Mark(PageCache, "copy pages to the reader")),
    ("filemap/mm_filemap_delete_from_page_cache", Mark(PageCache, "drop a page")),
    ("filemap/file_check_and_advance_wb_err", Mark(PageCache, "look for write errors")),
    ("writeback/writeback_dirty_folio", Mark(PageCache, "mark a page dirty")),
    ("writeback/writeback_mark_inode_dirty", Mark(PageCache, "mark the inode dirty")),
    ("writeback/writeback_dirty_inode_start", Push(Token::Dirty, FileSystem, "update the inode")),
    ("writeback/writeback_dirty_inode", Pop(Token::Dirty)),
    ("writeback/folio_wait_writeback", WaitAfter(Token::Pages, PageCache, "wait for pages to be written")),
    ("writeback/balance_dirty_pages", WaitAfter(Token::Write, PageCache, "throttled: too many dirty pages")),
    ("writeback/wbc_writepage", Mark(PageCache, "write a page")),
    ("writeback/writeback_start", Push(Token::Flusher, PageCache, "write back")),
    ("writeback/writeback_written", Pop(Token::Flusher)),
    ("writeback/writeback_wait", Wait(PageCache, "wait for the flusher")),
    ("writeback/writeback_single_inode_start", Push(Token::Inode, PageCache, "write back an inode")),
    ("writeback/writeback_single_inode", Pop(Token::Inode)),
    ("writeback/writeback_write_inode_start", Push(Token::Dirty, FileSystem, "write the inode")),
    ("writeback/writeback_write_inode", Pop(Token::Dirty)),
];
