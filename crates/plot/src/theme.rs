//! Colours, light and dark.

/// Red, green, blue and opacity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Colour(pub u8, pub u8, pub u8, pub f64);

impl Colour {
    const fn rgb(hex: u32) -> Colour {
        Colour((hex >> 16) as u8, (hex >> 8) as u8, hex as u8, 1.0)
    }

    /// Perceived lightness, 0 to 100 (CIE 1976 L*, sRGB).
    pub fn lightness(self) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let luminance = 0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2);
        if luminance > 0.008_856 { 116.0 * luminance.cbrt() - 16.0 } else { 903.3 * luminance }
    }

    /// The same colour, translucent.
    #[must_use]
    pub fn faint(self, opacity: f64) -> Colour {
        Colour(self.0, self.1, self.2, self.3 * opacity)
    }

    /// Mixes two colours, `share` (0 to 1) of the way to the other.
    #[must_use]
    pub fn mix(self, other: Colour, share: f64) -> Colour {
        let share = share.clamp(0.0, 1.0);
        let between = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
        Colour(
            between(self.0, other.0),
            between(self.1, other.1),
            between(self.2, other.2),
            self.3 + (other.3 - self.3) * share,
        )
    }
}

/// The colours of a picture. They differ in lightness too, for readers with colour vision deficiency.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Theme {
    pub background: Colour,
    pub text: Colour,
    /// Colour of less important text.
    pub muted: Colour,
    pub grid: Colour,
    pub axis: Colour,
    /// Deliveries: the dark bars.
    pub bars: Colour,
    /// Deliveries so far: the lighter line.
    pub sum: Colour,
    pub arrivals: Colour,
    pub failures: Colour,
    /// The machine: processors, disk, network, load.
    pub series: [Colour; 4],
    /// Series of any chart, in this order: neighbours differ strongly in lightness.
    pub many: &'static [Colour; 10],
}

const fn colours(hex: [u32; 10]) -> [Colour; 10] {
    let mut all = [Colour::rgb(0); 10];
    let mut at = 0;
    while at < hex.len() {
        all[at] = Colour::rgb(hex[at]);
        at += 1;
    }
    all
}

impl Theme {
    pub const LIGHT: Theme = Theme {
        background: Colour::rgb(0xff_ff_ff),
        text: Colour::rgb(0x1c_25_30),
        muted: Colour::rgb(0x5b_67_75),
        grid: Colour::rgb(0xe6_ea_ee),
        axis: Colour::rgb(0x8a_95_a1),
        bars: Colour::rgb(0x1d_4f_91),
        sum: Colour::rgb(0x74_a9_de),
        arrivals: Colour::rgb(0xc9_84_0a),
        failures: Colour::rgb(0xc4_32_3c),
        series: [Colour::rgb(0x2a_8a_57), Colour::rgb(0x8a_4f_b0), Colour::rgb(0x0f_8b_a8), Colour::rgb(0x8c_6d_46)],
        many: &colours([
            0x1d_4f_91, 0xf0_a9_3b, 0x2a_7d_4f, 0xa9_d3_f5, 0xc4_32_3c, 0xd9_b8_ea, 0x0f_8b_a8, 0x5a_1f_70, 0xc9_b2_7f,
            0x66_71_7d,
        ]),
    };

    pub const DARK: Theme = Theme {
        background: Colour::rgb(0x12_17_1d),
        text: Colour::rgb(0xe6_ea_ee),
        muted: Colour::rgb(0x9a_a6_b2),
        grid: Colour::rgb(0x26_2e_37),
        axis: Colour::rgb(0x62_6e_7b),
        bars: Colour::rgb(0x4e_94_e0),
        sum: Colour::rgb(0xa9_cd_f2),
        arrivals: Colour::rgb(0xf0_b4_41),
        failures: Colour::rgb(0xf0_6a_70),
        series: [Colour::rgb(0x5f_c9_8d), Colour::rgb(0xc0_8a_e6), Colour::rgb(0x4c_c3_dd), Colour::rgb(0xc9_a9_7d)],
        many: &colours([
            0x4e_94_e0, 0xf7_cf_6b, 0x3a_9a_67, 0xc9_e6_ff, 0xd8_55_5a, 0xe3_c6_f5, 0x35_b5_cf, 0x9a_5c_c0, 0xd9_bd_8a,
            0x7d_88_94,
        ]),
    };

    /// The colour of the n-th series. From the eleventh on the colours recur, closer to the text's; from the
    /// twenty-first on they repeat.
    pub fn series_colour(&self, index: usize) -> Colour {
        let colour = self.many[index % self.many.len()];
        if (index / self.many.len()).is_multiple_of(2) { colour } else { colour.mix(self.text, 0.55) }
    }

    /// Colour of a share (0 to 1) in a heat map.
    pub fn heat(&self, share: f64) -> Colour {
        self.grid.mix(self.bars, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_told_apart_without_seeing_colours() {
        for theme in [Theme::LIGHT, Theme::DARK] {
            let lightness: Vec<f64> = theme.many.iter().map(|colour| colour.lightness()).collect();
            let apart = lightness.windows(2).map(|pair| (pair[0] - pair[1]).abs()).fold(f64::MAX, f64::min);
            assert!(apart > 14.0, "{lightness:?}");
            let against = theme.background.lightness();
            assert!(lightness.iter().all(|light| (light - against).abs() > 15.0), "{lightness:?}");
            assert_eq!(theme.series_colour(20), theme.series_colour(0));
            for (a, b) in (0..20).flat_map(|a| (a + 1..20).map(move |b| (a, b))) {
                assert_ne!(theme.series_colour(a), theme.series_colour(b));
            }
        }
        assert!((Theme::LIGHT.background.lightness() - 100.0).abs() < 0.1);
    }
}
