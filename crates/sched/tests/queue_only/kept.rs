//! Mail that is kept back (queue-only, or its site, list or sender suspended) neither bounces nor expires, whatever
//! fails meanwhile.

use super::*;

const DAY: Ms = 24 * HOUR;

/// Whether a setting is one of [`World::set`], or else a suspension.
fn is_scope(setting: &str) -> bool {
    !["list:", "sender:home", "site:"].iter().any(|kind| setting.starts_with(kind))
}

impl World {
    /// Begins or ends a setting that keeps mail back.
    fn keep(&mut self, setting: &str, is_on: bool) {
        if is_scope(setting) { self.set(setting, is_on) } else { self.sched.set_suspended(setting, is_on, 0, "") }
    }

    fn post(&mut self, to: &str) -> MessageNo {
        self.mail_of(&[to], |accept| (accept.list, accept.class) = (Some("news".into()), Class::Bulk))
    }
}

/// Settings that keep a post of the list `news` from `ann@home.example`.
const OF_MESSAGES: [&str; 4] = ["all", "sender:@home.example", "client:192.0.2.0/24", "list:news"];

#[test]
fn mail_to_a_domain_that_does_not_resolve_neither_bounces_nor_expires() {
    for (domain, own) in [("gone.example", "domain:gone.example"), ("lost.example", "domain:lost.example")] {
        for setting in OF_MESSAGES.into_iter().chain([own]) {
            for comes_back in [true, false] {
                let mut world = World::new();
                world.keep(setting, true);
                let post = world.post(&format!("a@{domain}"));
                world.run(6 * DAY);
                assert_eq!(world.failed, [], "{setting}, {domain}");
                world.is_up = comes_back;
                world.keep(setting, false);
                world.run(DAY);
                assert_eq!(world.has_delivered(post), comes_back, "{setting}, {domain}");
                assert_eq!(world.failed.contains(&post), !comes_back, "{setting}, {domain}");
            }
        }
    }
}

#[test]
fn a_domain_with_kept_mail_fails_other_mail_at_once() {
    let mut world = World::new();
    world.keep("list:news", true);
    let kept: Vec<_> = (0..3_000).map(|_| world.post("a@gone.example")).collect();
    let free = world.mail("a@gone.example");
    world.run(HOUR);
    assert_eq!(world.failed, [free]);
    world.keep("list:news", false);
    world.run(DAY);
    assert_eq!(world.failed.len(), 1 + kept.len(), "all failed once they were not kept any more");
}

#[test]
fn mail_of_a_suspended_site_survives_the_end_of_its_domain() {
    let mut world = World::new();
    let waiting = world.mail("a@dead.example");
    world.run(HOUR);
    world.keep("site:dead.example", true);
    let domain = world.store.book.domain(world.store.book.lookup("a@dead.example").expect("it is known"));
    // Its route is looked up again, and there is none.
    world.is_slow = true;
    world.sched.routes_changed(world.now);
    world.run(1_000);
    assert!(world.asked.contains(&domain));
    let gone = Resolution::Permanent { dsn: Enhanced::new(5, 1, 2), text: "NXDOMAIN".to_owned() };
    world.sched.resolved(&world.store, domain, gone, world.now);
    world.run(6 * DAY);
    assert_eq!(world.failed, []);
    (world.is_slow, world.is_up) = (false, true);
    world.keep("site:dead.example", false);
    world.run(DAY);
    assert!(world.has_delivered(waiting));
}

/// A connection is being made when the mail is overdue and its keeper comes.
#[test]
fn a_connection_under_way_expires_nothing_that_is_kept_since() {
    for setting in OF_MESSAGES.into_iter().chain(["site:dead.example", "domain:dead.example", "class:bulk"]) {
        let mut world = World::new();
        let post = world.post("a@dead.example");
        world.run(5 * DAY - HOUR);
        world.is_hanging = true;
        world.run(DAY / 2);
        assert!(!world.connecting.is_empty(), "{setting}");
        world.keep(setting, true);
        world.is_hanging = false;
        for conn in std::mem::take(&mut world.connecting) {
            world.refuse(conn);
        }
        world.run(2 * DAY);
        assert_eq!(world.failed, [], "{setting}");
        world.keep(setting, false);
        world.run(DAY);
        assert_eq!(world.failed, [post], "{setting}: overdue at its next failure");
    }
}

#[test]
fn a_full_mailbox_expires_nothing_that_is_kept_and_is_probed_with_other_mail() {
    for setting in OF_MESSAGES.into_iter().chain(["domain:full.example"]) {
        let mut world = World::new();
        let post = world.post("a@full.example");
        world.run(5 * DAY - 3 * HOUR);
        world.keep(setting, true);
        let other = world.mail_of(&["a@full.example"], |accept| {
            (accept.sender, accept.origin) = ("bob@x.example".into(), "198.51.100.1".into());
        });
        world.run(DAY);
        assert_eq!(world.failed, [], "{setting}");
        world.is_up = true;
        world.run(DAY);
        let is_free = !["all", "domain:full.example"].contains(&setting);
        assert_eq!(world.has_delivered(other), is_free, "{setting}");
        assert!(!world.has_delivered(post), "{setting}");
        world.keep(setting, false);
        world.run(DAY);
        assert!(world.has_delivered(post), "{setting}");
    }
}
