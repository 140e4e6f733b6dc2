//! The badge on every page: the number of problems of the server.

use maud::{Markup, html};
use stentor_records::health::{Condition, Severity};

use super::format::plural;

pub fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Problem => "badge-bad",
        Severity::Warning => "badge-warn",
    }
}

/// The badge in the bar; empty if there are no problems.
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
