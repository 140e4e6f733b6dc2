use super::*;

const S: u64 = 1_000;

fn refusal(fault: Fault) -> TokenError {
    TokenError { fault, text: "no".to_owned() }
}

fn waits() -> TokenDecision {
    TokenDecision::Wait("no".to_owned())
}

#[test]
fn a_token_is_used_until_shortly_before_its_end() {
    for (expires_in_s, renew_s) in
        [(Some(3_599), 3_299), (None, 3_300), (Some(100), 90), (Some(0), 54), (Some(u64::MAX), 86_400 - 300)]
    {
        let mut keeper = TokenKeeper::default();
        assert_eq!(keeper.decision(7), TokenDecision::Refresh);
        let token = keeper.issued(Secret::from("a"), expires_in_s, 7);
        assert_eq!(keeper.decision(7 + renew_s * S - 1), TokenDecision::Use(token), "{expires_in_s:?}");
        assert_eq!(keeper.decision(7 + (renew_s + 1) * S), TokenDecision::Refresh, "{expires_in_s:?}");
    }
    assert_eq!(TokenKeeper::default().issued(Secret::from("a"), Some(9), u64::MAX - 1).generation, 1);
}

#[test]
fn a_token_that_is_good_outlives_an_endpoint_that_is_down() {
    let mut keeper = TokenKeeper::default();
    let token = keeper.issued(Secret::from("a"), Some(1_000), 0);
    assert_eq!(keeper.decision(900 * S), TokenDecision::Refresh);
    keeper.failed(&refusal(Fault::Endpoint), None, 900 * S, 0.5);
    assert_eq!(keeper.decision(901 * S), TokenDecision::Use(token));
    keeper.failed(&refusal(Fault::Endpoint), Some(600), 990 * S, 0.5);
    assert_eq!(keeper.decision(1_000 * S), waits());
}

#[test]
fn a_refusal_asks_for_one_token_and_no_more() {
    let mut keeper = TokenKeeper::default();
    let first = keeper.issued(Secret::from("a"), Some(3_600), 0);
    // Of twenty refused sessions one requests a token, and all log in again.
    for _ in 0..20 {
        assert!(keeper.refused(first.generation, S));
        assert_eq!(keeper.decision(S), TokenDecision::Refresh);
    }
    let second = keeper.issued(Secret::from("b"), Some(3_600), S);
    assert!(keeper.refused(first.generation, 2 * S), "a session that comes late");
    assert_eq!(keeper.decision(2 * S), TokenDecision::Use(second.clone()));
    assert!(!keeper.refused(second.generation, 2 * S), "a new one is refused, too");
    assert_eq!(keeper.decision(2 * S), TokenDecision::Use(second.clone()), "and tried again with the host's clock");
    assert!(!keeper.refused(second.generation, 300 * S));
    assert!(keeper.refused(second.generation, 302 * S), "one every five minutes");
    assert_eq!(keeper.decision(302 * S), TokenDecision::Refresh);
    keeper.failed(&refusal(Fault::Grant), None, 302 * S, 1.0);
    assert_eq!(keeper.decision(303 * S), waits(), "what was refused is not used meanwhile");
}

#[test]
fn failures_back_off_within_bounds() {
    for (fault, first_ms) in [(Fault::Endpoint, 10_000), (Fault::Grant, 60_000), (Fault::Client, 60_000)] {
        for chance in [0.0, 0.3, 1.0, f64::NAN, -7.0, 9.0] {
            let (mut keeper, mut now) = (TokenKeeper::default(), 0);
            for times in 0..40 {
                keeper.failed(&refusal(fault), None, now, chance);
                let full = (first_ms << times.min(16)).min(1_800_000);
                assert_eq!(keeper.decision(now + full / 2 - 1), waits(), "{times}");
                assert_eq!(keeper.decision(now + full), TokenDecision::Refresh, "{times}");
                now += full;
            }
            keeper.issued(Secret::from("a"), None, now);
            keeper.cached = None;
            keeper.failed(&refusal(fault), None, now, chance);
            assert_eq!(keeper.decision(now + first_ms), TokenDecision::Refresh, "an answer ends it");
        }
    }
    let mut keeper = TokenKeeper::default();
    keeper.failed(&refusal(Fault::Endpoint), Some(120), 0, 0.0);
    assert_eq!((keeper.decision(119 * S), keeper.decision(120 * S)), (waits(), TokenDecision::Refresh));
    keeper.failed(&refusal(Fault::Endpoint), Some(u64::MAX), 0, 0.0);
    assert_eq!(keeper.decision(3_600 * S), TokenDecision::Refresh);
    keeper.failed(&refusal(Fault::Grant), None, 4_000 * S, 0.0);
    keeper.retry();
    assert_eq!(keeper.decision(4_000 * S), TokenDecision::Refresh, "somebody has mended it");
}

/// A simulated world: arriving sessions, an endpoint that is up or down, a server that refuses old or revoked tokens,
/// or all.
struct World {
    keeper: TokenKeeper,
    chance: fastrand::Rng,
    now: u64,
    /// The endpoint's tokens: from when until when each is valid, by generation.
    issued: Vec<(u64, u64)>,
    revoked_until: u64,
    /// Times of the requests.
    asked: Vec<u64>,
}

impl World {
    fn login(&mut self, is_up: bool, refuses_all: bool) -> bool {
        let mut asked = 0;
        for _ in 0..2 {
            let token = match self.keeper.decision(self.now) {
                TokenDecision::Use(token) => token,
                TokenDecision::Wait(_) => return false,
                TokenDecision::Refresh => {
                    self.asked.push(self.now);
                    asked += 1;
                    if is_up {
                        let life_s = self.chance.u64(0..8_000);
                        self.issued.push((self.now, self.now + life_s.clamp(LIFE_S_MIN, LIFE_S_MAX) * S));
                        self.keeper.issued(Secret::from(self.issued.len().to_string().as_str()), Some(life_s), self.now)
                    } else {
                        let chance = self.chance.f64();
                        self.keeper.failed(&refusal(Fault::Endpoint), None, self.now, chance);
                        let TokenDecision::Use(token) = self.keeper.decision(self.now) else { return false };
                        token
                    }
                }
            };
            assert!(asked <= 2, "in one attempt");
            assert_eq!(token.secret.expose(), token.generation.to_string());
            let (from, until) = self.issued[token.generation as usize - 1];
            assert!(self.now < until, "a token is never used beyond its end");
            if !refuses_all && from >= self.revoked_until {
                return true;
            }
            if !self.keeper.refused(token.generation, self.now) {
                return false;
            }
        }
        false
    }
}

#[test]
fn seeded_worlds() {
    for seed in 0..300 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut world = World {
            keeper: TokenKeeper::default(),
            chance: fastrand::Rng::with_seed(seed + 1_000),
            now: 0,
            issued: Vec::new(),
            revoked_until: 0,
            asked: Vec::new(),
        };
        let (mut is_up, mut refuses_all) = (true, false);
        for _ in 0..2_000 {
            world.now += dice.u64(0..60_000);
            match dice.u32(0..100) {
                0 => is_up = !is_up,
                1 => refuses_all = !refuses_all,
                2 => world.revoked_until = world.now,
                _ => {}
            }
            let is_in = world.login(is_up, refuses_all);
            assert!(!(is_in && refuses_all), "seed {seed}");
        }
        // In all cases no more than a handful of requests in any five minutes.
        for (at, first) in world.asked.iter().enumerate() {
            let within = world.asked[at..].iter().take_while(|later| **later < first + REPLACED_EVERY_MS).count();
            // Far fewer than logins: without back-off or REPLACED_EVERY_MS there are 20 or more.
            assert!(within <= 12, "seed {seed}: {within} requests in five minutes");
        }
        // In the end everything works again.
        world.now += 2 * BACK_OFF_MS_MAX;
        assert!(
            world.login(true, false) || {
                world.now += REPLACED_EVERY_MS;
                world.login(true, false)
            },
            "seed {seed}"
        );
    }
}
