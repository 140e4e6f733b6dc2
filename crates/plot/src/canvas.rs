//! A surface to draw on, the same for SVG and PNG (plotters' two backends behind one type).

use std::fmt;
use std::sync::LazyLock;

use plotters::prelude::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, FontStyle, IntoFont, RGBAColor, ShapeStyle, TextStyle, register_font};

use crate::theme::{Colour, Theme};

/// The fonts named in SVG; PNG uses our own font, whatever the system has.
const FAMILY: &str = "Roboto, 'Helvetica Neue', Arial, sans-serif";

static FONT: LazyLock<bool> = LazyLock::new(|| {
    let regular = register_font(FAMILY, FontStyle::Normal, include_bytes!("../fonts/Roboto-Regular.ttf"));
    let bold = register_font(FAMILY, FontStyle::Bold, include_bytes!("../fonts/Roboto-Medium.ttf"));
    regular.is_ok() && bold.is_ok()
});

/// Larger pictures are refused: a mistyped size must not use up the memory.
pub const SIDE_MAX: u32 = 16_384;

#[derive(Debug)]
pub enum PlotError {
    /// Wider or higher than `SIDE_MAX` pixels, or empty.
    Size,
    Draw(String),
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlotError::Size => write!(f, "the picture would be empty, or wider or higher than {SIDE_MAX} pixels"),
            PlotError::Draw(why) => write!(f, "cannot draw the picture: {why}"),
        }
    }
}

impl std::error::Error for PlotError {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Svg,
    /// Pixels per unit, 1 to 4.
    Png {
        scale: u32,
    },
}

/// Converts a count to pixels.
pub fn pixels(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Alignment of text relative to its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Centre,
    Right,
}

/// A rectangle: left, top, width and height in pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Area {
    pub x: i32,
    pub y: i32,
    pub width: i32,
    pub height: i32,
}

impl Area {
    pub fn right(&self) -> i32 {
        self.x + self.width
    }

    pub fn bottom(&self) -> i32 {
        self.y + self.height
    }
}

/// The operations of both backends.
trait Surface {
    fn line(&mut self, from: (i32, i32), to: (i32, i32), style: &ShapeStyle) -> Result<(), String>;
    fn path(&mut self, points: &[(i32, i32)], style: &ShapeStyle) -> Result<(), String>;
    fn rect(&mut self, from: (i32, i32), to: (i32, i32), style: &ShapeStyle) -> Result<(), String>;
    fn text(&mut self, text: &str, style: &TextStyle<'_>, at: (i32, i32)) -> Result<(), String>;
}

impl<B: DrawingBackend> Surface for B {
    fn line(&mut self, from: (i32, i32), to: (i32, i32), style: &ShapeStyle) -> Result<(), String> {
        self.draw_line(from, to, style).map_err(|error| error.to_string())
    }

    fn path(&mut self, points: &[(i32, i32)], style: &ShapeStyle) -> Result<(), String> {
        self.draw_path(points.iter().copied(), style).map_err(|error| error.to_string())
    }

    fn rect(&mut self, from: (i32, i32), to: (i32, i32), style: &ShapeStyle) -> Result<(), String> {
        self.draw_rect(from, to, style, style.filled).map_err(|error| error.to_string())
    }

    fn text(&mut self, text: &str, style: &TextStyle<'_>, at: (i32, i32)) -> Result<(), String> {
        self.draw_text(text, style, at).map_err(|error| error.to_string())
    }
}

/// A picture being drawn. The first failure is kept and returned at the end.
pub struct Canvas<'s> {
    surface: &'s mut dyn Surface,
    scale: i32,
    failure: Option<String>,
    pub theme: Theme,
    pub width: i32,
    pub height: i32,
}

impl Canvas<'_> {
    fn keep(&mut self, drawn: Result<(), String>) {
        if let (Err(why), None) = (drawn, &self.failure) {
            self.failure = Some(why);
        }
    }

    fn at(&self, x: i32, y: i32) -> (i32, i32) {
        (x * self.scale, y * self.scale)
    }

    /// Fills a rectangle of whole pixels; does nothing if it is empty.
    pub fn fill(&mut self, area: Area, colour: Colour) {
        if area.width <= 0 || area.height <= 0 {
            return;
        }
        let from = self.at(area.x, area.y);
        let to = self.at(area.right(), area.bottom());
        let drawn = self.surface.rect(from, to, &ShapeStyle { color: colour.into(), filled: true, stroke_width: 0 });
        self.keep(drawn);
    }

    pub fn horizontal(&mut self, x: i32, right: i32, y: i32, colour: Colour) {
        self.fill(Area { x, y, width: right - x, height: 1 }, colour);
    }

    pub fn vertical(&mut self, x: i32, y: i32, bottom: i32, colour: Colour) {
        self.fill(Area { x, y, width: 1, height: bottom - y }, colour);
    }

    pub fn line(&mut self, points: &[(i32, i32)], width: u32, colour: Colour) {
        let style =
            ShapeStyle { color: colour.into(), filled: false, stroke_width: width * self.scale.cast_unsigned() };
        let scaled: Vec<(i32, i32)> = points.iter().map(|&(x, y)| self.at(x, y)).collect();
        let drawn = match scaled.as_slice() {
            [] | [_] => Ok(()),
            [from, to] => self.surface.line(*from, *to, &style),
            points => self.surface.path(points, &style),
        };
        self.keep(drawn);
    }

    fn style(&self, size: i32, bold: bool, colour: Colour, align: Align) -> TextStyle<'static> {
        let horizontal = match align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        let font = (FontFamily::Name(FAMILY), f64::from(size * self.scale)).into_font();
        let font = if bold { font.style(FontStyle::Bold) } else { font };
        let colour: RGBAColor = colour.into();
        let pos = Pos::new(horizontal, VPos::Center);
        TextStyle { font, color: colour.to_backend_color(), pos }
    }

    /// Draws text whose middle line is at `y`.
    pub fn text(&mut self, text: &str, at: (i32, i32), size: i32, align: Align, colour: Colour) {
        self.styled(text, at, size, align, colour, false);
    }

    pub fn bold(&mut self, text: &str, at: (i32, i32), size: i32, align: Align, colour: Colour) {
        self.styled(text, at, size, align, colour, true);
    }

    fn styled(&mut self, text: &str, at: (i32, i32), size: i32, align: Align, colour: Colour, bold: bool) {
        let style = self.style(size, bold, colour, align);
        let at = self.at(at.0, at.1);
        let drawn = self.surface.text(&printable(text), &style, at);
        self.keep(drawn);
    }

    /// Width of the text in pixels.
    pub fn text_width(&self, text: &str, size: i32) -> i32 {
        let style = self.style(size, false, self.theme.text, Align::Left);
        let width = style.font.box_size(&printable(text)).map_or(0, |size| size.0.cast_signed());
        width / self.scale
    }
}

/// Width of the text in pixels, without a canvas.
pub fn text_width(text: &str, size: i32, bold: bool) -> i32 {
    if !*FONT {
        return 0;
    }
    let font = (FontFamily::Name(FAMILY), f64::from(size)).into_font();
    let font = if bold { font.style(FontStyle::Bold) } else { font };
    font.box_size(&printable(text)).map_or(0, |size| size.0.cast_signed())
}

/// The text, or as much of it as fits into this width, followed by `…`.
pub fn shortened(text: &str, size: i32, width: i32) -> String {
    let text = printable(text);
    if text_width(&text, size, false) <= width {
        return text;
    }
    let letters: Vec<char> = text.chars().collect();
    // The longest prefix that fits, by bisection: widths grow with the text.
    let fits = |count: usize| {
        let start: String = letters[..count].iter().collect();
        let start = format!("{}…", start.trim_end());
        (text_width(&start, size, false) <= width).then_some(start)
    };
    let (mut low, mut high) = (0, letters.len());
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if fits(middle).is_some() { low = middle } else { high = middle }
    }
    if low == 0 { fits(0).unwrap_or_default() } else { fits(low).unwrap_or_default() }
}

/// Breaks the text between words into lines of at most this width; the last of `lines_max` is shortened. A no-break
/// space (U+00A0) keeps a number and its unit together.
pub fn wrapped(text: &str, size: i32, width: i32, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let text = printable(text);
    let is_break = |c: char| c.is_whitespace() && c != '\u{a0}';
    let mut words = text.split(is_break).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let mut line = word.to_owned();
        let is_last = lines.len() + 1 >= lines_max;
        while let Some(next) = words.peek() {
            let longer = format!("{line} {next}");
            if !is_last && text_width(&longer, size, false) > width {
                break;
            }
            line = longer;
            words.next();
        }
        lines.push(shortened(&line, size, width));
    }
    lines
}

/// Removes control characters from a name, which may come from a log, and cuts long names.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

impl From<Colour> for RGBAColor {
    fn from(Colour(red, green, blue, opacity): Colour) -> RGBAColor {
        RGBAColor(red, green, blue, opacity)
    }
}

/// Width and height of a picture in pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// Draws a picture of this size. Returns the bytes of its file.
pub fn draw(
    Size { width, height }: Size,
    format: Format,
    theme: Theme,
    paint: impl FnOnce(&mut Canvas<'_>),
) -> Result<Vec<u8>, PlotError> {
    let scale = match format {
        Format::Svg => 1,
        Format::Png { scale } => scale.clamp(1, 4),
    };
    let sound = |side: u32| side > 0 && side <= SIDE_MAX / scale;
    if !sound(width) || !sound(height) {
        return Err(PlotError::Size);
    }
    if !*FONT {
        return Err(PlotError::Draw("the font is damaged".to_owned()));
    }
    let size = Size { width: width * scale, height: height * scale };
    let paint = |surface: &mut dyn Surface| {
        let mut canvas = Canvas {
            surface,
            scale: scale.cast_signed(),
            failure: None,
            theme,
            width: width.cast_signed(),
            height: height.cast_signed(),
        };
        canvas.fill(Area { x: 0, y: 0, width: canvas.width, height: canvas.height }, theme.background);
        paint(&mut canvas);
        canvas.failure.map_or(Ok(()), |why| Err(PlotError::Draw(why)))
    };
    match format {
        Format::Svg => {
            let mut text = String::new();
            let mut backend = SVGBackend::with_string(&mut text, (size.width, size.height));
            paint(&mut backend)?;
            backend.present().map_err(|error| PlotError::Draw(error.to_string()))?;
            drop(backend);
            Ok(text.into_bytes())
        }
        Format::Png { .. } => {
            let mut pixels = vec![0; size.width as usize * size.height as usize * 3];
            let mut backend = BitMapBackend::with_buffer(&mut pixels, (size.width, size.height));
            paint(&mut backend)?;
            drop(backend);
            png(&pixels, size).map_err(|error| PlotError::Draw(error.to_string()))
        }
    }
}

fn png(pixels: &[u8], Size { width, height }: Size) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_files_of_their_kind() {
        let paint = |canvas: &mut Canvas<'_>| {
            canvas.fill(Area { x: 1, y: 1, width: 2, height: 2 }, Theme::LIGHT.bars);
            canvas.text("a<b>&\"\u{7}", (5, 5), 12, Align::Left, Theme::LIGHT.text);
        };
        let svg =
            String::from_utf8(draw(Size { width: 40, height: 20 }, Format::Svg, Theme::LIGHT, paint).unwrap()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("a&lt;b&gt;&amp;") && !svg.contains('\u{7}'), "{svg}");
        let file = draw(Size { width: 40, height: 20 }, Format::Png { scale: 2 }, Theme::DARK, paint).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (80, 40));
        let pixel = |x: usize, y: usize| &pixels[(y * 80 + x) * 3..][..3];
        assert_eq!(pixel(0, 0), [0x12, 0x17, 0x1d]);
        // From the second to the end of the fifth row and column of the doubled picture.
        for (x, y, inside) in [(2, 2, true), (5, 5, true), (6, 5, false), (1, 2, false)] {
            assert_eq!(pixel(x, y) == [0x1d, 0x4f, 0x91], inside, "{x} {y}");
        }
    }

    #[test]
    fn sizes_without_sense_are_refused() {
        for (width, height) in [(0, 10), (10, 0), (SIDE_MAX + 1, 10), (u32::MAX, u32::MAX)] {
            let size = Size { width, height };
            assert!(matches!(draw(size, Format::Svg, Theme::LIGHT, |_| ()), Err(PlotError::Size)));
        }
    }

    #[test]
    fn long_text_is_cut_or_broken_to_the_width() {
        assert_eq!(shortened("short", 12, 200), "short");
        let long = "journal records that are much too long for this";
        let cut = shortened(long, 12, 100);
        assert!(cut.ends_with('…') && cut.len() > 8 && text_width(&cut, 12, false) <= 100, "{cut}");
        assert_eq!(shortened(long, 12, 0), "");
        assert_eq!(wrapped("one two", 12, 400, 2), ["one two"]);
        let lines = wrapped(long, 12, 90, 4);
        assert!(lines.len() > 2 && lines.iter().all(|line| text_width(line, 12, false) <= 90), "{lines:?}");
        assert!(wrapped(long, 12, 90, 2)[1].ends_with('…'));
        assert!(wrapped("  ", 12, 10, 2).is_empty());
    }

    #[test]
    fn wider_text_is_wider() {
        let mut widths = Vec::new();
        draw(Size { width: 10, height: 10 }, Format::Svg, Theme::LIGHT, |canvas| {
            widths = ["", "i", "Wide text"].map(|text| canvas.text_width(text, 12)).to_vec();
        })
        .unwrap();
        assert!(widths[0] < widths[1] && widths[1] < widths[2], "{widths:?}");
    }
}
