//! Lines for the log on standard error, where systemd or a shell takes them. What a line quotes is printable.

/// Reports an error or something that the operator should know.
pub fn error(text: &str) {
    eprintln!("stentor-deliver: {}", printable(text));
}

/// `text` on one line, without what a terminal would act on.
fn printable(text: &str) -> String {
    text.chars().map(|c| if stentor_stats::escape::is_trap(c) { '?' } else { c }).collect()
}
