//! `users`: what users who log in have submitted in the last hour and day, and what they may.
//!
//! Those of our file in its order, all of them; Dovecot's are not ours to list: those who have submitted something.

use std::sync::Arc;

use stentor_auth::{Amounts, Limits, User};
use stentor_control::users_view::{Share, USERS_MAX, UserRow, UsersView};
use stentor_engine::core::Core;

/// At most [`USERS_MAX`] of them.
pub fn view(core: &Arc<Core>) -> UsersView {
    let settings = core.settings();
    let view = UsersView { hostname: settings.config.hostname.clone(), now: core.clock.now(), ..UsersView::default() };
    let security = core.security();
    let Some(auth) = security.auth() else { return view };
    if let Some(users) = auth.users() {
        let row = |user: &Arc<User>| {
            let row = row(&user.name, auth.amounts(&user.name), &user.limits);
            UserRow { locked: user.is_locked, ..row }
        };
        let rows = users.iter().take(USERS_MAX).map(row).collect();
        return UsersView { source: "users".to_owned(), users_total: users.len() as u64, rows, ..view };
    }
    let mut all = auth.counted();
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let rows = all.iter().take(USERS_MAX).map(|(user, amounts)| row(user, *amounts, &Limits::default())).collect();
    UsersView { source: "dovecot".to_owned(), users_total: all.len() as u64, rows, ..view }
}

fn row(user: &str, amounts: Amounts, limits: &Limits) -> UserRow {
    UserRow {
        user: user.to_owned(),
        locked: false,
        messages_hour: Share { used: amounts.messages_hour, max: limits.messages_per_hour_max },
        messages_day: Share { used: amounts.messages_day, max: limits.messages_per_day_max },
        recipients_hour: Share { used: amounts.recipients_hour, max: limits.recipients_per_hour_max },
        recipients_day: Share { used: amounts.recipients_day, max: limits.recipients_per_day_max },
    }
}
