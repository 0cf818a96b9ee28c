//! Colours of a drawing, for a light and a dark ground.
//!
//! The hues are those of Okabe and Ito, "Color Universal Design" (2008), darkened or lightened until each has a contrast of 4.5 to its
//! ground: they differ for all kinds of colour vision. Each rule names the light colour before the custom property: a program that
//! knows no properties draws in the light colours.

use std::fmt::Write as _;

/// A colour by its part in the drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Behind all.
    Ground,
    /// Words and figures.
    Text,
    /// Words that explain.
    Muted,
    /// Lines that only lead the eye.
    Grid,
    /// Published figures.
    Theirs,
    /// Fixed settings of ours.
    Ours,
    /// The learned setting.
    Auto,
    /// The Universal Scalability Law.
    Law,
}

/// Fonts that a system has: none is fetched.
pub(super) const FONTS: &str = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif";

/// The style sheet.
pub(super) fn sheet() -> String {
    let mut text = String::from(".bp{");
    for ink in Ink::ALL {
        let _infallible = write!(text, "--bp-{}:{};", ink.name(), ink.on_light());
    }
    text += "}\n@media (prefers-color-scheme:dark){.bp{";
    for ink in Ink::ALL {
        let _infallible = write!(text, "--bp-{}:{};", ink.name(), ink.on_dark());
    }
    text += "}}\n";
    for ink in Ink::ALL {
        let (name, light, fill, line) = (ink.name(), ink.on_light(), ink.fill(), ink.line());
        let _infallible = writeln!(
            text,
            ".{fill}{{fill:{light};fill:var(--bp-{name})}}.{line}{{fill:none;stroke:{light};stroke:var(--bp-{name})}}"
        );
    }
    let (name, light) = (Ink::Ground.name(), Ink::Ground.on_light());
    let _infallible = writeln!(
        text,
        ".bp-rim{{paint-order:stroke;stroke:{light};stroke:var(--bp-{name});stroke-width:4px;stroke-linejoin:round}}"
    );
    text
}

// === impl Ink ===

impl Ink {
    pub(super) const ALL: [Self; 8] = [
        Self::Ground,
        Self::Text,
        Self::Muted,
        Self::Grid,
        Self::Theirs,
        Self::Ours,
        Self::Auto,
        Self::Law,
    ];

    /// Class of what is filled with it.
    pub(super) const fn fill(self) -> &'static str {
        match self {
            Self::Ground => "bp-fill-ground",
            Self::Text => "bp-fill-text",
            Self::Muted => "bp-fill-muted",
            Self::Grid => "bp-fill-grid",
            Self::Theirs => "bp-fill-theirs",
            Self::Ours => "bp-fill-ours",
            Self::Auto => "bp-fill-auto",
            Self::Law => "bp-fill-law",
        }
    }

    /// Class of a line of it.
    pub(super) const fn line(self) -> &'static str {
        match self {
            Self::Ground => "bp-line-ground",
            Self::Text => "bp-line-text",
            Self::Muted => "bp-line-muted",
            Self::Grid => "bp-line-grid",
            Self::Theirs => "bp-line-theirs",
            Self::Ours => "bp-line-ours",
            Self::Auto => "bp-line-auto",
            Self::Law => "bp-line-law",
        }
    }

    /// Name of its custom property, after `--bp-`.
    const fn name(self) -> &'static str {
        match self {
            Self::Ground => "ground",
            Self::Text => "text",
            Self::Muted => "muted",
            Self::Grid => "grid",
            Self::Theirs => "theirs",
            Self::Ours => "ours",
            Self::Auto => "auto",
            Self::Law => "law",
        }
    }

    const fn on_light(self) -> &'static str {
        match self {
            Self::Ground => "#ffffff",
            Self::Text => "#1b1f24",
            Self::Muted => "#57606a",
            Self::Grid => "#dde2e7",
            Self::Theirs => "#6e7781",
            Self::Ours => "#0069a6",
            Self::Auto => "#b34700",
            Self::Law => "#00735c",
        }
    }

    const fn on_dark(self) -> &'static str {
        match self {
            Self::Ground => "#0d1117",
            Self::Text => "#e6edf3",
            Self::Muted => "#a3adb8",
            Self::Grid => "#2b323a",
            Self::Theirs => "#8d96a0",
            Self::Ours => "#56b4e9",
            Self::Auto => "#f0a040",
            Self::Law => "#3fc9a2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let part = |place: usize| {
            let value =
                f64::from(u8::from_str_radix(colour.get(place..place + 2).unwrap(), 16).unwrap())
                    / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let [one, other] = [one, other].map(luminance);
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn everything_to_be_read_stands_out_from_both_grounds() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 0.01);
        for ink in Ink::ALL.into_iter().filter(|ink| ![Ink::Ground, Ink::Grid].contains(ink)) {
            for (colour, ground) in
                [(ink.on_light(), Ink::Ground.on_light()), (ink.on_dark(), Ink::Ground.on_dark())]
            {
                let found = contrast(colour, ground);
                assert!(found >= 4.5, "{ink:?} {colour} on {ground}: {found:.2}");
            }
        }
    }

    #[test]
    fn each_class_has_a_rule_and_each_property_a_value_in_both_themes() {
        let sheet = sheet();
        for ink in Ink::ALL {
            assert!(sheet.contains(&format!(".{}{{", ink.fill())), "{ink:?}");
            assert!(sheet.contains(&format!(".{}{{", ink.line())), "{ink:?}");
            let property = format!("--bp-{}:", ink.name());
            assert_eq!(sheet.matches(&property).count(), 2, "{ink:?}");
        }
    }
}
