//! How each kind of fault is written: an example of every one, for people who wrote something else.

/// `kind = ...` of every kind.
const FORMS: [(&str, &str); 32] = [
    ("loss", "{ loss = { odds = { each = 1000 } } }"),
    ("caught-corruption", "{ caught-corruption = { odds = { each = 1000 } } }"),
    ("corruption", "{ corruption = { odds = { each = 1000 } } }"),
    ("duplication", "{ duplication = { odds = { each = 1000 } } }"),
    ("reordering", "{ reordering = { by = \"2us\", of = { odds = { each = 1000 } } } }"),
    ("link-down", "{ link-down = { packets = \"lost\", notice-after = \"1us\" } }"),
    (
        "link-flapping",
        "{ link-flapping = { down = \"1us\", period = \"10us\", packets = \"lost\", notice-after = \"1us\" } }",
    ),
    ("link-degraded", "{ link-degraded = { percent = 50, latency = \"1us\" } }"),
    ("lost-credit", "{ lost-credit = { class = \"bulk\", bytes = 1024 } }"),
    ("stuck-lane", "{ stuck-lane = { class = \"bulk\" } }"),
    ("wrong-lane", "{ wrong-lane = { class = \"bulk\", lane = 0 } }"),
    ("wrong-arbitration", "{ wrong-arbitration = { first = 0 } }"),
    ("switch-down", "{ switch-down = { notice-after = \"1us\" } }"),
    ("switch-slow", "{ switch-slow = { percent = 50, latency = \"1us\" } }"),
    ("interface-dead", "{ interface-dead = { side = \"both\" } }"),
    ("completions", "{ completions = { end = { late = \"5us\" } } }"),
    ("pause-storm", "{ pause-storm = { class = \"bulk\" } }"),
    ("slow-receiver", "{ slow-receiver = { percent = 50 } }"),
    ("crash", "\"crash\""),
    ("paused", "\"paused\""),
    (
        "interruptions",
        "{ interruptions = { every = \"100us\", length = \"5us\", lengths = \"equal\" } }",
    ),
    ("clock-jump", "{ clock-jump = { ahead = \"1ms\" } }"),
    ("clock-drift", "{ clock-drift = { ppm = 50 } }"),
    ("clock-frozen", "\"clock-frozen\""),
    ("disk-slow", "{ disk-slow = { by = \"1ms\" } }"),
    ("disk-fails", "\"disk-fails\""),
    ("disk-full", "\"disk-full\""),
    ("disk-torn", "{ disk-torn = { bytes = 100 } }"),
    ("send-refused", "\"send-refused\""),
    ("tight-queue", "{ tight-queue = { messages = 1 } }"),
    ("spurious-wake", "{ spurious-wake = { every = \"10us\" } }"),
    ("late-timer", "{ late-timer = { by = \"5us\" } }"),
];

/// Returns the kind that `line` names and how it is written; `None` where the line is about
/// something else.
pub(super) fn of_line(line: &str) -> Option<(&'static str, &'static str)> {
    let words = line.trim_start().strip_prefix("kind")?;
    let mut words = words
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    FORMS.into_iter().find(|(name, _)| *name == first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultPlan;

    #[test]
    fn of_line__knows_a_right_form_of_every_kind() {
        for (name, form) in FORMS {
            let head = "format = 1\n[[fault]]\nat = \"1us\"\nuntil = \"2us\"\ntarget = \"n0\"\n";
            let plan = FaultPlan::parse("p", &format!("{head}kind = {form}\n")).unwrap();
            assert_eq!(plan.faults[0].kind.name(), name);
            // A number is no way to write any of them.
            let sentence = FaultPlan::parse("p", &format!("{head}kind = {{ {name} = 5 }}\n"))
                .unwrap_err()
                .to_string();
            assert!(
                sentence.starts_with("p: line 6: ") && sentence.contains(&format!("kind = {form}")),
                "{sentence}"
            );
        }
    }
}
