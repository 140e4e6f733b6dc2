//! The block layer, as its submitting thread sees it. `requests` follows the requests themselves.

use super::Act::{Clear, Mark};
use super::{QUEUE_BIO, Rule};
use crate::analyse::layer::Layer::Block;

pub const RULES: &[Rule] = &[
    ("block/block_bio_queue", Mark(Block, QUEUE_BIO)),
    ("block/block_split", Mark(Block, QUEUE_BIO)),
    ("block/block_bio_remap", Mark(Block, QUEUE_BIO)),
    ("block/block_getrq", Mark(Block, "fill the request")),
    ("block/block_bio_backmerge", Mark(Block, "merge")),
    ("block/block_bio_frontmerge", Mark(Block, "merge")),
    ("block/block_rq_merge", Mark(Block, "merge")),
    // Back to who submitted it, with a plug; else insert or issue follow.
    ("block/block_io_start", Clear),
    ("block/block_plug", Clear),
    ("block/block_unplug", Mark(Block, "dispatch")),
    ("block/block_rq_insert", Mark(Block, "dispatch")),
    ("block/block_rq_requeue", Mark(Block, "dispatch")),
    ("block/block_rq_issue", Mark(Block, "hand to the driver")),
    ("block/block_rq_complete", Mark(Block, "complete")),
    ("block/block_io_done", Clear),
];
