//! Lists by name. If a selection matches nothing because there is no such list, the answer names the existing ones.

use stentor_control::ErrorCode;
use stentor_control::problem::Problem;
use stentor_core::Core;

use crate::suggestions::NearestNames;

/// Maximum names in an answer.
const NAMES_SHOWN_MAX: usize = 20;

/// The problem to report if `name` is not a configured list. Mail of a list removed from the configuration may still be
/// queued, so call this only when nothing matched.
pub fn unknown(core: &Core, name: Option<&str>) -> Option<Problem> {
    let settings = core.settings();
    let name = name.filter(|name| settings.list(name).is_none())?;
    let names: Vec<&str> = settings.config.lists.iter().map(|list| &**list.list.name()).collect();
    Some(Problem::new(ErrorCode::NotFound, text(name, &names)))
}

fn text(name: &str, names: &[&str]) -> String {
    let mut nearest = NearestNames::to(name);
    for name in names {
        nearest.see(name);
    }
    if let Some(hint) = nearest.hint() {
        return format!("there is no list {name}; {hint}");
    }
    let shown = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        _ if names.is_empty() => format!("there is no list {name}; no list is configured"),
        0 => format!("there is no list {name}; lists: {shown}"),
        more => format!("there is no list {name}; lists: {shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_that_are_there_are_named() {
        assert_eq!(text("nws", &["talk", "news"]), "there is no list nws; did you mean news?");
        assert_eq!(text("jobs", &["news", "talk"]), "there is no list jobs; lists: news, talk");
        assert_eq!(text("nws", &[]), "there is no list nws; no list is configured");
        let many: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(text("nws", &many).ends_with(", 19 and 5 more"));
    }
}
