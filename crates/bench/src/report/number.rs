//! Figures for people.

/// Four digits are enough for people: `28,330`, `1.27`, `12,345,678`.
pub fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{value:.2}");
    }
    if value.abs() < 1_000.0 {
        return format!("{value:.1}");
    }
    let whole = format!("{value:.0}");
    let digits = whole.len();
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (digits - place).is_multiple_of(3) && text != "-" {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
