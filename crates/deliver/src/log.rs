//! Lines for the log on standard error, where systemd or a shell takes them. What a line quotes is printable.

/// Reports an error or something that the operator should know.
pub fn error(text: &str) {
    eprintln!("stentor-deliver: {}", printable(text));
}

/// `text` without control characters, on one line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
