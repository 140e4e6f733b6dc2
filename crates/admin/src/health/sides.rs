//! Connection pools per side of the listeners: smtp for everyone, smtps and submission for users.
//!
//! Promise: a condition names its side, and refuses mail (`/readyz` is 503) only while no side accepts clients: users
//! can send while strangers fill port 25, and mail from outside arrives while users' ports are full. Untrusted clients
//! cannot take the places of trusted ones.

use std::sync::atomic::{AtomicU64, Ordering};

use stentor_config::{ListenConfig, Role, Service};
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_core::live::health::{ConditionTexts, Name, Observation, grown};
use stentor_queue::ids::Ms;

/// A pause within this time counts as current.
const PAUSED_MS: Ms = 1_500;

const ROLES: [Role; 2] = [Role::Relay, Role::Users];

/// Refusal counters per side.
pub(super) struct Sides {
    turned_away: [u64; ROLES.len()],
}

/// The state of one side.
struct Side {
    role: Role,
    open: usize,
    max: usize,
    has_turned_away: bool,
    is_paused: bool,
}

impl Side {
    /// Whether no connection is left, not even for trusted clients.
    fn is_full(&self) -> bool {
        self.open >= self.max
    }
}

fn limit_of(role: Role) -> Limit {
    match role {
        Role::Relay => Limit::Connections,
        Role::Users => Limit::SubmissionConnections,
    }
}

impl Sides {
    pub fn new(core: &Core) -> Sides {
        Sides { turned_away: ROLES.map(|role| core.limits.hits(limit_of(role))) }
    }

    pub fn look(&mut self, core: &Core, steady: Ms, seen: &mut Vec<Observation>) {
        let listen = &core.settings().config.listen;
        let (open, paused) = (core.live.sessions(), &core.live.health.intake.accept_paused);
        let has_paused = |at: &AtomicU64| {
            let at = at.load(Ordering::Relaxed);
            at > 0 && steady.saturating_sub(at) < PAUSED_MS
        };
        let mut sides = Vec::with_capacity(ROLES.len());
        for (role, turned_away) in ROLES.into_iter().zip(&mut self.turned_away) {
            let has_turned_away = grown(core.limits.hits(limit_of(role)), turned_away) > 0;
            let (open, paused) = match role {
                Role::Relay => (open.relay, &paused.relay),
                Role::Users => (open.users, &paused.users),
            };
            if listen.listeners().any(|(service, _)| service.role() == role) {
                let max = listen.connections_max_of(role) as usize;
                sides.push(Side { role, open, max, has_turned_away, is_paused: has_paused(paused) });
            }
        }
        seen.extend(observations(&sides, listen));
    }
}

fn observations(sides: &[Side], listen: &ListenConfig) -> Vec<Observation> {
    let (are_full, are_paused) = (sides.iter().all(Side::is_full), sides.iter().all(|side| side.is_paused));
    let mut seen = Vec::new();
    for side in sides {
        let (subject, key) = match side.role {
            Role::Relay => ("smtp", "connections_max"),
            Role::Users => ("submission", "submission_connections_max"),
        };
        let at = place(side.role, listen);
        if side.is_paused {
            let what = format!("not accepting connections at {at}: out of file descriptors or memory");
            let next = format!("raise the limit of open files (systemd: LimitNOFILE), or lower [listen] {key}");
            seen.push(
                Observation::holds(Name::NotAccepting, subject, ConditionTexts::new(what, next)).refusing(are_paused),
            );
        }
        if side.has_turned_away || side.is_full() {
            let (who, others) = match (side.is_full(), side.role) {
                (true, _) => ("clients", ""),
                (false, Role::Relay) => ("untrusted clients", "; trusted clients are still accepted"),
                (false, Role::Users) => ("clients not logged in", "; logged-in sessions continue"),
            };
            let (open, max) = (side.open.min(side.max), side.max);
            let what = format!("{who} get 421 at {at}: {open} of {max} connections in use{others}");
            let next = format!("list clients with `ss -tn`; raise [listen] {key} or lower connections_per_client_max");
            seen.push(
                Observation::holds(Name::ConnectionsFull, subject, ConditionTexts::new(what, next)).refusing(are_full),
            );
        }
    }
    seen
}

/// The configured listeners of a role.
fn place(role: Role, listen: &ListenConfig) -> String {
    let mut names: Vec<&str> = listen
        .listeners()
        .map(|(service, _)| service)
        .filter(|service| service.role() == role)
        .map(Service::name)
        .collect();
    names.dedup();
    format!("`{}`", names.join("` and `"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn listen(keys: &str) -> ListenConfig {
        let text = format!("data_dir = \"/tmp/x\"\nhostname = \"mx.home.test\"\n[listen]\n{keys}\n");
        stentor_config::check_text(Path::new("stentor.toml"), &text).unwrap_or_else(|found| panic!("{found:?}")).listen
    }

    fn side(role: Role, open: usize, has_turned_away: bool) -> Side {
        Side { role, open, max: 10, has_turned_away, is_paused: false }
    }

    /// Observations: subject, whether mail is refused, and the words.
    fn seen(sides: &[Side], listen: &ListenConfig) -> Vec<(String, bool, String)> {
        let all = observations(sides, listen).into_iter();
        all.map(|seen| (seen.subject, seen.refuses_mail == Some(true), seen.words.what)).collect()
    }

    #[test]
    fn one_full_side_refuses_nobody_at_the_other() {
        let both = listen("smtp = [\"127.0.0.1:0\"]\nsubmission = [\"127.0.0.1:0\"]");
        assert!(seen(&[side(Role::Relay, 9, false), side(Role::Users, 9, false)], &both).is_empty());
        let users = seen(&[side(Role::Relay, 2, false), side(Role::Users, 10, true)], &both);
        let what = "clients get 421 at `submission`: 10 of 10 connections in use";
        assert_eq!(users, [("submission".to_owned(), false, what.to_owned())]);
        let relay = seen(&[side(Role::Relay, 10, true), side(Role::Users, 2, false)], &both);
        let what = "clients get 421 at `smtp`: 10 of 10 connections in use";
        assert_eq!(relay, [("smtp".to_owned(), false, what.to_owned())]);
        let all = seen(&[side(Role::Relay, 10, true), side(Role::Users, 10, true)], &both);
        assert!(all.len() == 2 && all.iter().all(|(_, refuses, _)| *refuses), "{all:?}");
    }

    #[test]
    fn the_only_side_refuses_everybody_once_trusted_clients_find_no_place_either() {
        let one = listen("smtp = [\"127.0.0.1:0\"]");
        let strangers = seen(&[side(Role::Relay, 8, true)], &one);
        let what =
            "untrusted clients get 421 at `smtp`: 8 of 10 connections in use; trusted clients are still accepted";
        assert_eq!(strangers, [("smtp".to_owned(), false, what.to_owned())]);
        assert!(seen(&[side(Role::Relay, 10, true)], &one)[0].1);
    }

    #[test]
    fn accepting_that_pauses_names_its_side() {
        let both = listen("smtp = [\"127.0.0.1:0\"]\nsubmission = [\"127.0.0.1:0\"]");
        let paused = Side { is_paused: true, ..side(Role::Users, 3, false) };
        let found = seen(&[side(Role::Relay, 3, false), paused], &both);
        let what = "not accepting connections at `submission`: out of file descriptors or memory";
        assert_eq!(found, [("submission".to_owned(), false, what.to_owned())]);
    }
}
