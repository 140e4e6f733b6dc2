//! Mail of each lifetime expires in its time, also behind older mail that lives longer, and a look for overdue mail
//! does not visit all of it.

use super::*;

/// Ordinary mail that waits in front of a bounce.
const MANY: usize = 20_000;
/// Ticks after a failure: looking at each message would take 20 of them, and more for each line.
const TICKS_MAX: usize = 8;

fn world(lifetime_ms: Ms, bounce_lifetime_ms: Ms) -> World {
    let mut world = World::new();
    let cfg = SchedConfig { lifetime_ms, bounce_lifetime_ms: Some(bounce_lifetime_ms), ..SchedConfig::default() };
    world.sched.configure(cfg);
    world
}

fn bounce(world: &mut World, to: &str) -> MessageNo {
    world.mail_of(&[to], |accept| accept.sender = String::new())
}

#[test]
fn bounces_expire_in_their_time_behind_older_mail() {
    for to in ["a@dead.example", "a@lost.example", "a@full.example"] {
        let mut world = world(120 * HOUR, 2 * HOUR);
        let older = world.mail(to);
        world.run(1_000);
        let bounce = bounce(&mut world, to);
        let later = world.mail(to);
        world.run(HOUR);
        assert_eq!(world.failed, [], "{to}");
        world.run(11 * HOUR);
        assert_eq!(world.failed, [bounce], "{to}");
        assert!([older, later].iter().all(|no| world.store.message(*no).is_some()));
    }
}

#[test]
fn bounces_that_live_longer_keep_nothing_from_expiring() {
    for to in ["a@dead.example", "a@lost.example", "a@full.example"] {
        let mut world = world(2 * HOUR, 120 * HOUR);
        let older = bounce(&mut world, to);
        world.run(1_000);
        let ordinary = world.mail(to);
        world.run(12 * HOUR);
        assert_eq!(world.failed, [ordinary], "{to}");
        assert!(world.store.message(older).is_some());
    }
}

/// Ends the clocks of host and domain, and counts the ticks until nothing is due.
fn ticks_of_a_failure(world: &mut World) -> usize {
    world.sched.flush_all();
    let mut ticks = 0;
    loop {
        let effects: Vec<Effect> = world.sched.effects().collect();
        if effects.is_empty() {
            if world.sched.next_tick().is_none_or(|at| at > world.now) {
                return ticks;
            }
            ticks += 1;
            world.sched.tick(&world.store, world.now);
        }
        for effect in effects {
            world.obey(effect);
        }
    }
}

#[test]
fn a_look_for_overdue_mail_is_short() {
    for to in ["a@dead.example", "a@lost.example"] {
        let mut world = world(120 * HOUR, 2 * HOUR);
        for _ in 0..MANY {
            world.mail(to);
        }
        world.run(1_000);
        bounce(&mut world, to);
        world.run(HOUR);
        let idle = ticks_of_a_failure(&mut world);
        world.run(3 * HOUR);
        assert_eq!(world.failed.len(), 1);
        let again = ticks_of_a_failure(&mut world);
        assert!(idle.max(again) <= TICKS_MAX, "{to}: {idle} and {again} ticks");
    }
}
