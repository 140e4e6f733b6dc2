//! System calls: `syscalls/sys_enter_NAME` and `sys_exit_NAME` are found by their names. And `io_uring`.

use super::Act::{Mark, Wait};
use super::Rule;
use crate::analyse::layer::Layer::Call;

pub const RULES: &[Rule] = &[
    ("io_uring/io_uring_submit_req", Mark(Call, "submit to io_uring")),
    ("io_uring/io_uring_queue_async_work", Mark(Call, "hand to an io_uring worker")),
    ("io_uring/io_uring_cqring_wait", Wait(Call, "wait for a completion")),
];

/// `pwrite64` of `syscalls/sys_enter_pwrite64`.
pub fn entered(event: &str) -> Option<&str> {
    event.strip_prefix("syscalls/sys_enter_")
}

pub fn is_exit(event: &str) -> bool {
    event.starts_with("syscalls/sys_exit_") || event == "raw_syscalls/sys_exit"
}
