//! Logs lines to standard error, for systemd or a shell. Quoted text is made printable.

/// Logs an error or a notice for the operator.
pub fn error(text: &str) {
    eprintln!("stentor-deliver: {}", printable(text));
}

/// Converts `text` to one line, without control characters for terminals.
fn printable(text: &str) -> String {
    text.chars().map(|c| if stentor_records::escape::is_trap(c) { '?' } else { c }).collect()
}
