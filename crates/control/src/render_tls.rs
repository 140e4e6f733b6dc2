//! Displays the TLS of sessions with hosts, for `hosts` and `site`. As in [`super::render`], text is escaped and cut.

use stentor_queue::ids::Ms;

use super::foreign::cut;
use super::format::{Width, line, span};
use super::site_view::{HostView, WeakTlsView, tls_words};

/// Formats the weakest session of thirty days, and its age.
pub fn weakest_tls(weak: &WeakTlsView, now: Ms, width: Width) -> String {
    let (session, host) = (cut(tls_words(&weak.session), width.column(60)), cut(&weak.host, 40));
    format!("of 30 days: {session}, {} ago at {host}", span(now.saturating_sub(weak.at)))
}

/// Adds the TLS of the last session with a host.
pub fn host_tls(out: &mut String, host: &HostView, now: Ms, width: Width) {
    let Some(tls) = &host.tls else { return };
    let (session, ago) = (cut(tls_words(&tls.session), width.column(60)), span(now.saturating_sub(tls.at)));
    let proven = if tls.proven.is_empty() { String::new() } else { format!("; {}", tls.proven) };
    line(out, format_args!("        TLS {session}, {ago} ago{}", cut(&proven, width.rest(40))));
    if let Some(certificate) = &tls.certificate {
        line(out, format_args!("        certificate {}", cut(&certificate.words(), width.rest(20))));
        line(out, format_args!("        SHA-256 {}", cut(&certificate.sha256, 64)));
    }
}
