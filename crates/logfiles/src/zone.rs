//! Time zones, from the system's database. JSON has milliseconds; what people read has the local time and its offset.

use stentor_records::civil::Zone;

/// `local`, `utc`, `+01:00` or a name of the system's time zone database.
pub fn named(name: &str) -> Result<Zone, String> {
    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    if name.eq_ignore_ascii_case("utc") {
        return Ok(Zone::utc());
    }
    if let Some(digits) = name.strip_prefix(['+', '-']) {
        let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
        let seconds = hours.parse::<u8>().ok().zip(minutes.parse::<u8>().ok()).filter(|(h, m)| *h < 24 && *m < 60);
        let (hours, minutes) = seconds.ok_or_else(|| {
            format!(
                "--zone {name}: not a valid offset; write, for instance, \
            +01:00"
            )
        })?;
        let east_s = i32::from(hours) * 3600 + i32::from(minutes) * 60;
        return Ok(Zone::fixed(if name.starts_with('-') { -east_s } else { east_s }));
    }
    let zone = if name == "local" {
        TimeZone::system()
    } else {
        TimeZone::get(name).map_err(|error| format!("--zone {name}: {error}"))?
    };
    Ok(Zone::new(move |unix_s| Timestamp::from_second(unix_s).map_or(0, |at| zone.to_offset(at).seconds())))
}

/// The system's zone; UTC where it has none.
pub fn local() -> Zone {
    named("local").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_named_or_given_as_offsets() {
        // 2026-07-01 and 2026-12-01, noon.
        let (summer, winter) = (1_782_907_200, 1_796_126_400);
        assert_eq!(named("+05:30").unwrap().offset_s(summer), 19_800);
        assert_eq!(named("-03").unwrap().offset_s(summer), -10_800);
        assert_eq!(named("UTC").unwrap().offset_s(summer), 0);
        assert!(named("local").is_ok());
        assert!(named("Nowhere/Atall").is_err() && named("+25:00").is_err());
        // Not every machine that runs the tests has the zones' database.
        if let Ok(vienna) = named("Europe/Vienna") {
            assert_eq!((vienna.offset_s(summer), vienna.offset_s(winter)), (7200, 3600));
        }
    }
}
