//! Submission limits: a user's own, which override the defaults.

use std::fmt;
use std::str::FromStr;

/// The keys of the four limits, in the users file and in `[auth]`.
pub const LIMIT_KEYS: [&str; 4] =
    ["messages_per_hour_max", "messages_per_day_max", "recipients_per_hour_max", "recipients_per_day_max"];

/// Submission limits. `None`: no limit; 0: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub messages_per_hour_max: Option<u32>,
    pub messages_per_day_max: Option<u32>,
    pub recipients_per_hour_max: Option<u32>,
    pub recipients_per_day_max: Option<u32>,
}

impl Limits {
    /// Limits from values in the order of [`LIMIT_KEYS`].
    pub fn new([messages_hour, messages_day, recipients_hour, recipients_day]: [Option<u32>; 4]) -> Limits {
        Limits {
            messages_per_hour_max: messages_hour,
            messages_per_day_max: messages_day,
            recipients_per_hour_max: recipients_hour,
            recipients_per_day_max: recipients_day,
        }
    }

    /// Values in the order of [`LIMIT_KEYS`].
    pub fn values(&self) -> [Option<u32>; 4] {
        [
            self.messages_per_hour_max,
            self.messages_per_day_max,
            self.recipients_per_hour_max,
            self.recipients_per_day_max,
        ]
    }
}

/// One limit of a user: a number, `none`, or `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Limit {
    /// The default for all users.
    #[default]
    Default,
    /// No limit, whatever the default.
    None,
    AtMost(u32),
}

/// Why a text is not a valid limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number up to {max}, `none` or `default`", max = u32::MAX)]
pub struct LimitError(String);

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        match text {
            "default" => Ok(Limit::Default),
            "none" => Ok(Limit::None),
            // Rust also parses forms such as +1, which are not valid here.
            _ if text.bytes().all(|octet| octet.is_ascii_digit()) => {
                text.parse().map(Limit::AtMost).map_err(|_| LimitError(text.to_owned()))
            }
            _ => Err(LimitError(text.to_owned())),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Default => out.write_str("default"),
            Limit::None => out.write_str("none"),
            Limit::AtMost(max) => write!(out, "{max}"),
        }
    }
}

/// The limits of one user, in the order of [`LIMIT_KEYS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnLimits(pub [Limit; 4]);

impl OwnLimits {
    /// These limits, with those of `other` where there is none.
    #[must_use]
    pub fn or(self, other: OwnLimits) -> OwnLimits {
        let [mut own, others] = [self.0, other.0];
        for (limit, other) in own.iter_mut().zip(others) {
            if *limit == Limit::Default {
                *limit = other;
            }
        }
        OwnLimits(own)
    }

    /// The limits in force for the user; `all` are the defaults.
    pub fn over(self, all: &Limits) -> Limits {
        let mut values = all.values();
        for (value, own) in values.iter_mut().zip(self.0) {
            match own {
                Limit::Default => {}
                Limit::None => *value = None,
                Limit::AtMost(max) => *value = Some(max),
            }
        }
        Limits::new(values)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_users_own_limit_wins_and_none_lifts_that_of_all() {
        let all = Limits::new([Some(1), Some(2), None, Some(4)]);
        let own = OwnLimits([Limit::Default, Limit::None, Limit::AtMost(0), Limit::AtMost(9)]);
        assert_eq!(own.over(&all), Limits::new([Some(1), None, Some(0), Some(9)]));
        assert_eq!(OwnLimits::default().over(&all), all);
        let others = OwnLimits([Limit::AtMost(7), Limit::AtMost(7), Limit::AtMost(7), Limit::None]);
        assert_eq!(own.or(others).0, [Limit::AtMost(7), Limit::None, Limit::AtMost(0), Limit::AtMost(9)]);
    }

    #[test]
    fn other_texts_are_no_limit() {
        for bad in ["", "-1", "+1", "1.5", "many", "None", "4294967296", "1 ", "\u{661}"] {
            let error = bad.parse::<Limit>();
            assert!(error.as_ref().is_err_and(|error| error.to_string().contains("`none` or `default`")), "{error:?}");
        }
        assert_eq!("4294967295".parse(), Ok(Limit::AtMost(u32::MAX)));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(text in "(none|default|[0-9]{1,11}|.{0,6})") {
            if let Ok(limit) = text.parse::<Limit>() {
                prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
            }
        }
    }
}
