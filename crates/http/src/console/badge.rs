//! The badge on every page: how many things are wrong with the server.

use maud::{Markup, html};
use stentor_stats::health::{Condition, Severity};

use super::format::plural;

pub fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Problem => "badge-bad",
        Severity::Warning => "badge-warn",
    }
}

/// Of the bar; nothing while all is well.
pub fn badge(conditions: &[Condition]) -> Markup {
    let problems = conditions.iter().filter(|condition| condition.severity == Severity::Problem).count() as u64;
    let warnings = conditions.len() as u64 - problems;
    html! {
        @if problems > 0 {
            a.badge-bad href="/health" { (plural(problems, "problem")) }
        } @else if warnings > 0 {
            a.badge-warn href="/health" { (plural(warnings, "warning")) }
        }
    }
}
