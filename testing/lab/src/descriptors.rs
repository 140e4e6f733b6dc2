//! Raises the limit of file descriptors: each connection takes one, and few systems allow 60,000 by default.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Above this Linux gives a process no descriptors, root or not.
const SYSTEM_LIMIT: &str = "/proc/sys/fs/nr_open";

/// Raises the limit as far as this process may: to the system's (root), else to its hard limit. How many there are now.
pub fn raise() -> u64 {
    let most = std::fs::read_to_string(SYSTEM_LIMIT).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(most) = most
        && setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).is_ok()
    {
        return most;
    }
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum }).is_ok();
    if raised { hard } else { limit.current.unwrap_or(u64::MAX) }
}
