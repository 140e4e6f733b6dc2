//! The loop of a world that does what the scheduler wants at once, and whose time passes from tick to tick.

use stentor_queue::ids::Ms;
use stentor_queue::store::Store;
use stentor_sched::{Effect, Scheduler};

/// Effects and ticks of one [`AtOnce::run`]; more of them are a loop without a clock.
const STEPS_MAX: usize = 1_000_000;

pub trait AtOnce {
    fn parts(&mut self) -> (&mut Scheduler, &Store, &mut Ms);

    fn obey(&mut self, effect: Effect);

    /// All that happens within `ms`.
    fn run(&mut self, ms: Ms) {
        let until = *self.parts().2 + ms;
        for _ in 0..STEPS_MAX {
            let (sched, store, now) = self.parts();
            let effects: Vec<Effect> = sched.effects().collect();
            if effects.is_empty() {
                let Some(at) = sched.next_tick().filter(|at| *at <= until) else {
                    *now = until;
                    return;
                };
                *now = at.max(*now);
                sched.tick(store, *now);
            }
            for effect in effects {
                self.obey(effect);
            }
        }
        panic!("a loop without a clock");
    }
}
