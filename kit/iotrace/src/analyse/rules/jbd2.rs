//! The journal of ext4: its thread, and the handles of those who change something.

use super::Act::{Clear, Mark, Pop, Push, Wait};
use super::{Rule, Token};
use crate::analyse::layer::Layer::Journal;

pub const RULES: &[Rule] = &[
    ("jbd2/jbd2_start_commit", Push(Token::Commit, Journal, "commit")),
    ("jbd2/jbd2_commit_locking", Push(Token::CommitStep, Journal, "commit: wait for open handles")),
    ("jbd2/jbd2_commit_flushing", Push(Token::CommitStep, Journal, "commit: flush the data")),
    ("jbd2/jbd2_commit_logging", Push(Token::CommitStep, Journal, "commit: write the log")),
    ("jbd2/jbd2_submit_inode_data", Mark(Journal, "submit data of an inode")),
    ("jbd2/jbd2_drop_transaction", Push(Token::CommitStep, Journal, "commit: clean up")),
    ("jbd2/jbd2_end_commit", Pop(Token::Commit)),
    ("jbd2/jbd2_handle_start", Clear),
    ("jbd2/jbd2_handle_extend", Mark(Journal, "extend the handle")),
    ("jbd2/jbd2_handle_restart", Wait(Journal, "join a transaction")),
    ("jbd2/jbd2_handle_stats", Wait(Journal, "leave the transaction")),
    ("jbd2/jbd2_lock_buffer_stall", Mark(Journal, "wait for a buffer of a commit")),
    ("jbd2/jbd2_checkpoint", Mark(Journal, "checkpoint")),
    ("jbd2/jbd2_update_log_tail", Mark(Journal, "move the log's tail")),
    ("jbd2/jbd2_write_superblock", Wait(Journal, "write the journal's superblock")),
];
