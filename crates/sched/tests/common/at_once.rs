//! The loop of a world that performs effects at once and whose time advances from tick to tick.

use stentor_queue::ids::Ms;
use stentor_queue::store::Store;
use stentor_sched::{Effect, Scheduler};

/// Limit for effects and ticks of one [`AtOnce::run`]; more than that is a loop without a clock.
const STEPS_MAX: usize = 1_000_000;

pub trait AtOnce {
    fn parts(&mut self) -> (&mut Scheduler, &Store, &mut Ms);

    fn obey(&mut self, effect: Effect);

    /// Runs everything that happens within `ms`.
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
