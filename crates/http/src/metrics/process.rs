//! The process's own figures, under the names that Prometheus client libraries use.

use std::fs;

use super::text::Text;

/// Clock ticks per second in `/proc/self/stat`: the kernel reports 100 to user space on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

pub fn write(text: &mut Text, started_ms: u64) {
    text.value("process_start_time_seconds", started_ms as f64 / 1000.0);
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(stat) {
        text.value("process_cpu_seconds_total", stat.ticks as f64 / TICKS_PER_SECOND);
        text.value("process_virtual_memory_bytes", stat.virtual_bytes as f64);
        let resident = stat.resident_pages as f64 * rustix::param::page_size() as f64;
        text.value("process_resident_memory_bytes", resident);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.value("process_open_fds", open.count() as f64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    text.value("process_max_fds", limit.map_or(f64::INFINITY, |limit| limit as f64));
}

struct Stat {
    ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Parses the line; the name may contain anything and ends at the last parenthesis (proc(5)).
fn stat(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat { ticks: number(14)? + number(15)?, virtual_bytes: number(23)?, resident_pages: number(24)? })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_may_hold_anything() {
        let rest: Vec<String> =
            (3..=52).map(|field: u32| if field == 3 { "S".to_owned() } else { field.to_string() }).collect();
        let stat = super::stat(&format!("1 (a) b c) {}", rest.join(" "))).unwrap();
        assert_eq!((stat.ticks, stat.virtual_bytes, stat.resident_pages), (29, 23, 24));
    }
}
