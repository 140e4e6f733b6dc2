//! The author of an action, for the audit record.

use stentor_control::Requester;

/// Where login names are looked up; no directory service is queried, since it might hang.
const PASSWD: &str = "/etc/passwd";

/// Formats `uid=1000(ann) pid=4711`, or `user=ann address=192.0.2.1`.
pub fn who(peer: &Requester) -> String {
    let (uid, pid) = match peer {
        Requester::Process { uid, pid } => (*uid, *pid),
        Requester::Http { who, address } => return format!("{who} address={address}"),
    };
    let table = std::fs::read_to_string(PASSWD).unwrap_or_default();
    let name = login(&table, uid).map(|name| format!("({name})")).unwrap_or_default();
    let pid = pid.map(|pid| format!(" pid={pid}")).unwrap_or_default();
    format!("uid={uid}{name}{pid}")
}

fn login(table: &str, uid: u32) -> Option<&str> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid) && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:\nann:x:1000:1000::/home/ann:\n";
        assert_eq!((login(table, 0), login(table, 1000)), (Some("root"), Some("ann")));
        assert_eq!((login(table, 7), login(table, 8)), (None, None));
        assert_eq!(
            who(&Requester::Http { who: "token=ci".into(), address: [192, 0, 2, 1].into() }),
            "token=ci address=192.0.2.1"
        );
        assert_eq!(who(&Requester::Process { uid: u32::MAX - 1, pid: None }), format!("uid={}", u32::MAX - 1));
    }
}
