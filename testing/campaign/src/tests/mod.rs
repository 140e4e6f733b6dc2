//! Tests of the real committer beside the seeded runs.

mod batches;
