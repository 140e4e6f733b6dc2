//! Classifies requests by what they change, and therefore which requests they wait for.

use crate::dkim_view::DkimRequest;
use crate::protocol::Request;
use crate::suppression_view::SuppressionRequest;

/// The kinds of changes, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeScope {
    /// Nothing: it reads, or counts what it would do.
    Nothing,
    /// The server, or whether and when whole flows and sites are tried. It runs at once, beside all others.
    Server,
    /// Mail, in slices that may take long: one such request at a time.
    Mail,
}

impl Request {
    pub fn changes(&self) -> ChangeScope {
        match self {
            Request::Act { dry_run: true, .. }
            | Request::Bounce { dry_run: true, .. }
            | Request::QueueRun { dry_run: true, .. }
            | Request::QueueOnly { dry_run: true, .. }
            | Request::Suspend { dry_run: true, .. }
            | Request::Flush { dry_run: true, .. }
            | Request::Status
            | Request::Doctor
            | Request::Users
            | Request::Queue(_)
            | Request::QueueStuck(_)
            | Request::QueueShow { .. }
            | Request::Address { .. }
            | Request::Verify { .. }
            | Request::Observe(_)
            | Request::Site { .. }
            | Request::Export { .. }
            | Request::PostShow(_)
            | Request::Quarantine(_)
            | Request::QuarantineShow { .. }
            | Request::Suppression(SuppressionRequest::List(_))
            | Request::Dkim(DkimRequest::Records { .. })
            | Request::Cat { .. } => ChangeScope::Nothing,
            Request::List(request) if request.is_query() => ChangeScope::Nothing,
            Request::Flush { .. }
            | Request::List(_)
            | Request::Suspend { .. }
            | Request::QueueOnly { .. }
            | Request::Suppression(_)
            | Request::Dkim(DkimRequest::Rotate(_))
            | Request::Reload
            | Request::Stop => ChangeScope::Server,
            Request::Act { .. }
            | Request::Bounce { .. }
            | Request::QueueRun { .. }
            | Request::QuarantineCopy { .. } => ChangeScope::Mail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(fields: &str) -> ChangeScope {
        let line = format!("{{\"v\": 1, {fields}}}");
        Request::parse(line.as_bytes()).unwrap_or_else(|problem| panic!("{line}: {problem:?}")).changes()
    }

    #[test]
    fn only_what_changes_mail_waits_for_its_turn() {
        let acts = ["hold", "release", "remove", "bounce", "requeue", "quarantine_release", "quarantine_delete"]
            .map(|verb| format!("\"verb\": \"{verb}\", \"list\": \"news\""));
        let others = [
            "\"verb\": \"bounce\", \"list\": \"news\", \"for_s\": 60".to_owned(),
            "\"verb\": \"queue_run\"".to_owned(),
        ];
        for fields in acts.iter().chain(&others) {
            assert_eq!(changes(fields), ChangeScope::Mail, "{fields}");
            assert_eq!(changes(&format!("{fields}, \"dry_run\": true")), ChangeScope::Nothing, "{fields}");
        }
        for fields in [
            "\"verb\": \"suspend\", \"list\": \"news\"",
            "\"verb\": \"queue_only\", \"list\": \"news\"",
            "\"verb\": \"flush\"",
        ] {
            assert_eq!(changes(fields), ChangeScope::Server, "{fields}");
            assert_eq!(changes(&format!("{fields}, \"dry_run\": true")), ChangeScope::Nothing, "{fields}");
        }
        for fields in [
            "\"verb\": \"resume\", \"list\": \"news\"",
            "\"verb\": \"flush\"",
            "\"verb\": \"reload\"",
            "\"verb\": \"stop\"",
        ] {
            assert_eq!(changes(fields), ChangeScope::Server, "{fields}");
        }
        for fields in ["\"verb\": \"status\"", "\"verb\": \"queue\"", "\"verb\": \"export\"", "\"verb\": \"doctor\""] {
            assert_eq!(changes(fields), ChangeScope::Nothing, "{fields}");
        }
    }
}
