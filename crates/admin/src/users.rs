//! `users`: submissions of users in the last hour and day, and their limits.
//!
//! All users of our file are listed, in its order. Of Dovecot's, which cannot be enumerated: those who logged in or
//! submitted something in the last day, and those with local settings, such as a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use stentor_auth::{CountedUser, SubmissionCounts};
use stentor_control::users_view::{Share, USERS_MAX, UserRow, UsersView};
use stentor_core::Core;
use stentor_users::{FileKind, Limits, OwnLimits, User, Users};

/// At most [`USERS_MAX`] users.
pub fn view(core: &Arc<Core>) -> UsersView {
    let settings = core.settings();
    let view = UsersView { hostname: settings.config.hostname.clone(), now: core.clock.now(), ..UsersView::default() };
    let security = core.security();
    let Some(auth) = security.auth() else { return view };
    let all = &settings.config.auth.limits;
    let (kind, users) = auth.users();
    if kind == FileKind::Own {
        let row = |user: &Arc<User>| {
            let row = row(&user.name, auth.amounts(&user.name), &user.limits.over(all));
            UserRow { locked: user.is_locked, ..row }
        };
        let rows = users.iter().take(USERS_MAX).map(row).collect();
        return UsersView { source: "users".to_owned(), users_total: users.len() as u64, rows, ..view };
    }
    let known = dovecots(&users, auth.counted());
    let row = |(name, (user, counted)): (&Arc<str>, &(Option<&User>, Option<CountedUser>))| {
        let (amounts, given) = counted.as_ref().map_or_else(Default::default, |one| (one.amounts, one.given));
        let said = user.map_or_else(OwnLimits::default, |user| user.limits);
        let row = row(name, amounts, &said.or(given).over(all));
        UserRow { locked: user.is_some_and(|user| user.is_locked), ..row }
    };
    let rows = known.iter().take(USERS_MAX).map(row).collect();
    UsersView { source: "dovecot".to_owned(), users_total: known.len() as u64, rows, ..view }
}

/// By name: a user's entry in the file, and the counts.
type UsersByName<'a> = BTreeMap<Arc<str>, (Option<&'a User>, Option<CountedUser>)>;

fn dovecots(users: &Users, counted: Vec<CountedUser>) -> UsersByName<'_> {
    let mut known: UsersByName<'_> = users.iter().map(|user| (user.name.clone(), (Some(&**user), None))).collect();
    for one in counted {
        let name = one.user.clone();
        known.entry(name).or_default().1 = Some(one);
    }
    known
}

fn row(user: &str, amounts: SubmissionCounts, limits: &Limits) -> UserRow {
    UserRow {
        user: user.to_owned(),
        locked: false,
        messages_hour: Share { used: amounts.messages_hour, max: limits.messages_per_hour_max },
        messages_day: Share { used: amounts.messages_day, max: limits.messages_per_day_max },
        recipients_hour: Share { used: amounts.recipients_hour, max: limits.recipients_per_hour_max },
        recipients_day: Share { used: amounts.recipients_day, max: limits.recipients_per_day_max },
    }
}
