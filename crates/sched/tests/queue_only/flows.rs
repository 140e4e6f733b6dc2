//! Settings of lists and senders beyond the number of flows that mail without a setting can have.

use stentor_sched::RecipientPlace;

use super::*;

/// `FLOWS_MAX` of the scheduler.
const FLOWS: usize = 20_000;

/// A world in which so many bulk senders have mail that further ones share a flow.
fn full_world() -> World {
    let mut world = World::new();
    world.is_slow = true;
    for n in 0..FLOWS {
        bulk(&mut world, &format!("list@s{n}.example"), "a@filler.example");
    }
    world.run(1_000);
    world.is_slow = false;
    world
}

fn bulk(world: &mut World, sender: &str, to: &str) -> MessageNo {
    world.mail_of(&[to], |accept| (accept.sender, accept.class) = (sender.to_owned(), Class::Bulk))
}

fn post(world: &mut World, list: &str, to: &str) -> MessageNo {
    world.mail_of(&[to], |accept| (accept.list, accept.class) = (Some(list.into()), Class::Bulk))
}

#[test]
fn a_setting_before_the_mail_has_its_effect() {
    let mut world = full_world();
    world.sched.set_suspended("list:stopped", true, 0, "");
    world.sched.set_suspended("sender:stopped.example", true, 0, "");
    world.set("list:queued", true);
    let only = FlowRules { sources: SourceSet(2), ..FlowRules::default() };
    world.sched.set_rules(FlowKey::List("from-two".into()), Some(only));
    let kept = [
        post(&mut world, "stopped", "a@x.example"),
        post(&mut world, "queued", "a@x.example"),
        bulk(&mut world, "list@stopped.example", "a@x.example"),
    ];
    let from_two: Vec<_> = (0..10).map(|n| post(&mut world, "from-two", &format!("a@x{n}.example"))).collect();
    let free = [post(&mut world, "free", "a@x.example"), bulk(&mut world, "list@free.example", "a@x.example")];
    world.run(HOUR);
    assert!(kept.iter().all(|no| !world.has_delivered(*no)) && free.iter().all(|no| world.has_delivered(*no)));
    assert!(from_two.iter().all(|no| world.delivered.contains(&(*no, 1))), "{:?}", world.delivered);
    world.sched.set_suspended("list:stopped", false, 0, "");
    world.sched.set_suspended("sender:stopped.example", false, 0, "");
    world.set("list:queued", false);
    world.run(HOUR);
    assert!(kept.iter().all(|no| world.has_delivered(*no)));
}

/// The mail waits in a shared flow: in line, behind a deferral of its message, and for its own clock.
#[test]
fn a_setting_for_waiting_mail_has_its_effect() {
    let mut world = full_world();
    let to = ["a@dead.example", "a@soft.example", "a@full.example"];
    let of_all = |world: &mut World, name: &str| -> Vec<MessageNo> {
        let ordinary = |accept: &mut Accept| accept.sender = format!("ann@{name}.example");
        to.into_iter()
            .flat_map(|to| {
                let bulk = bulk(world, &format!("list@{name}.example"), to);
                [bulk, post(world, name, to), world.mail_of(&[to], ordinary)]
            })
            .collect()
    };
    let (stopped, free) = (of_all(&mut world, "stopped"), of_all(&mut world, "free"));
    world.run(1_000);
    world.sched.set_suspended("list:stopped", true, 0, "");
    world.sched.set_suspended("sender:stopped.example", true, 0, "");
    world.run(1_000);
    for no in &stopped {
        let id = world.store.pending_of(*no).next().expect("it is pending");
        let status = world.sched.recipient_status(&world.store, *no, id, world.now);
        assert_eq!(status.state, RecipientPlace::Suspended, "{status:?}");
    }
    world.is_up = true;
    world.run(24 * HOUR);
    assert!(free.iter().all(|no| world.has_delivered(*no)));
    assert!(stopped.iter().all(|no| !world.has_delivered(*no)), "{stopped:?} {:?}", world.delivered);
    world.sched.set_suspended("list:stopped", false, 0, "");
    world.sched.set_suspended("sender:stopped.example", false, 0, "");
    world.run(24 * HOUR);
    assert!(stopped.iter().all(|no| world.has_delivered(*no)));
}

#[test]
fn a_setting_for_waiting_mail_ends_with_it() {
    let mut world = full_world();
    let waiting = post(&mut world, "queued", "a@dead.example");
    world.run(1_000);
    world.set("list:queued", true);
    let only = FlowRules { lifetime_ms: Some(HOUR), ..FlowRules::default() };
    world.sched.set_rules(FlowKey::List("queued".into()), Some(only));
    world.run(24 * HOUR);
    assert_eq!(world.failed, []);
    world.set("list:queued", false);
    world.run(24 * HOUR);
    assert_eq!(world.failed, [waiting], "it has the list's lifetime");
}
