//! Colours, light and dark.

/// Red, green, blue and opacity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Colour(pub u8, pub u8, pub u8, pub f64);

impl Colour {
    const fn rgb(hex: u32) -> Colour {
        Colour((hex >> 16) as u8, (hex >> 8) as u8, hex as u8, 1.0)
    }

    /// The same, shining through.
    #[must_use]
    pub fn faint(self, opacity: f64) -> Colour {
        Colour(self.0, self.1, self.2, self.3 * opacity)
    }

    /// Between two, `share` (0 to 1) of the way to the other.
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

/// What is drawn in which colour. Told apart by lightness too, for those who do not see all colours.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Theme {
    pub background: Colour,
    pub text: Colour,
    /// Less important text.
    pub muted: Colour,
    pub grid: Colour,
    pub axis: Colour,
    /// Deliveries: the dark bars.
    pub bars: Colour,
    /// What has been delivered so far: the lighter line.
    pub sum: Colour,
    pub arrivals: Colour,
    pub failures: Colour,
    /// The machine: processors, disk, network, load.
    pub series: [Colour; 4],
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
    };

    /// Steps of a heat map, 0 to 1.
    pub fn heat(&self, share: f64) -> Colour {
        self.grid.mix(self.bars, share)
    }
}
