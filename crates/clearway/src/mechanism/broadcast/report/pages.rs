//! Shows broadcasts: how long they took next to what the link and the bare exchange take, how
//! symbols came in, why some left again, by which way, and what links carried.

use super::casting::{BroadcastReport, CastProgressSamples, CastRun};
use crate::report::html::drawing::{
    DOWN, coloured, figure, legend, pairs, parts_legend, sample, tick, time,
};
use crate::report::html::tables::{cell, head, number, table};
use crate::report::html::{section, text};
use crate::report::model::{ExtendedReal, Figure, Labels, Report, labels};
use crate::report::numerals::length_shown;

mod drawing;

/// Labels of broadcasts' figures.
const BYTES: &str = "bytes";
const LOSS: &str = "loss";
const MODE: &str = "mode";

/// Returns the sections, or nothing where nothing was cast.
pub(super) fn casting(report: &Report) -> String {
    let Some(casting) = &report.part::<BroadcastReport>() else { return String::new() };
    let shown = ReportedCasts {
        report,
        casting,
        modes: distinct(casting.casts.iter().filter_map(|run| label(run, MODE))),
    };
    [
        shown.overview(),
        shown.sequence(),
        shown.progress(),
        shown.causes(),
        shown.ways(),
        shown.links(),
    ]
    .concat()
}

/// Returns each once, in the order of appearance.
pub(super) fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

fn label<'a>(run: &'a CastRun, key: &str) -> Option<&'a str> {
    run.labels.get(key).map(String::as_str)
}

/// Returns a share that is lost, for a person.
pub(super) fn lost(share: &str) -> String {
    match share.parse::<f64>() {
        Ok(0.0) => "nothing lost".to_owned(),
        Ok(share) => format!("{}\u{202f}% lost", tick(100.0 * share)),
        Err(_) => share.to_owned(),
    }
}

/// A report's broadcasts, with what all sections need.
struct ReportedCasts<'a> {
    report: &'a Report,
    casting: &'a BroadcastReport,
    /// In the order of their colours.
    modes: Vec<&'a str>,
}

/// A mode's colour and a run of it with its samples.
type SampledRun<'a> = (usize, &'a CastRun, &'a CastProgressSamples);

impl<'a> ReportedCasts<'a> {
    fn place(&self, mode: &str) -> usize {
        self.modes.iter().position(|known| *known == mode).unwrap_or(0)
    }

    fn name(&self, mode: &str) -> String {
        coloured(self.place(mode), mode)
    }

    fn legend(&self, more: &[(&str, &str)]) -> String {
        let modes = self.modes.iter().map(|mode| self.name(mode));
        legend(modes.chain(more.iter().map(|(class, name)| sample(DOWN, class, name))))
    }

    /// Returns what was cast under one loss and of one length, in the order in which it was.
    fn groups(&self) -> Vec<(&'a str, &'a str, Vec<&'a CastRun>)> {
        let casting: &'a BroadcastReport = self.casting;
        let both = |run: &'a CastRun| Some((label(run, BYTES)?, label(run, LOSS)?));
        let mut lengths: Vec<(u64, &str)> =
            casting.casts.iter().filter_map(|run| Some((run.bytes, label(run, BYTES)?))).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let losses = distinct(casting.casts.iter().filter_map(|run| label(run, LOSS)));
        let of = |bytes: &'a str, loss: &'a str| {
            (
                bytes,
                loss,
                casting
                    .casts
                    .iter()
                    .filter(|run| both(run) == Some((bytes, loss)))
                    .collect::<Vec<_>>(),
            )
        };
        let all =
            lengths.iter().flat_map(|(_, bytes)| losses.iter().map(move |loss| of(bytes, loss)));
        all.filter(|(_, _, runs)| !runs.is_empty()).collect()
    }

    /// Returns the groups with samples.
    fn sampled_runs(&self) -> Vec<(&'a str, &'a str, Vec<SampledRun<'a>>)> {
        let samples =
            |run: &'a CastRun| Some((self.place(label(run, MODE)?), run, run.samples.as_ref()?));
        let groups = self.groups().into_iter();
        let groups = groups.map(|(bytes, loss, runs)| {
            (bytes, loss, runs.into_iter().filter_map(samples).collect())
        });
        groups.filter(|(_, _, sampled): &(_, _, Vec<_>)| !sampled.is_empty()).collect()
    }

    /// Returns the figure `name` of `run`, of its loss alone where it has no other label.
    fn find(&self, name: &str, of: &Labels) -> Option<&'a Figure> {
        let same = |figure: &&Figure| {
            figure.name == name
                && [BYTES, LOSS, MODE].iter().all(|key| {
                    figure.label(key).is_none_or(|it| of.get(*key).is_some_and(|of| of == it))
                })
                && figure.label(labels::QUANTILE).is_none_or(|quantile| quantile == "p50")
        };
        self.report.figures.iter().find(same)
    }

    fn value(&self, name: &str, of: &Labels) -> Option<f64> {
        self.find(name, of).map(|figure| figure.value.get()).filter(|value| value.is_finite())
    }

    /// Returns the seconds that the link alone needs for an object.
    fn bound(&self, run: &CastRun) -> f64 {
        run.bytes as f64 * 8.0 / (self.casting.rate_mbps.get() * 1e6).max(1.0)
    }

    fn overview(&self) -> String {
        let row = |(bytes, loss, runs): (&str, &str, Vec<&CastRun>)| {
            let mark = |run: &&CastRun| {
                let of = |name| self.value(name, &run.labels);
                Some((
                    self.place(label(run, MODE)?),
                    of("broadcast_seconds")?,
                    of("broadcast_p99_seconds")?,
                ))
            };
            let first = runs.first()?;
            let is_short = self.value("broadcast_bare_ratio", &first.labels).is_some();
            Some(drawing::CastRow {
                name: format!("{}, {}", length_shown(bytes), lost(loss)),
                marks: runs.iter().filter_map(mark).collect(),
                bound: self.bound(first),
                bare: self.value("broadcast_bare_seconds", &first.labels).filter(|_| is_short),
            })
        };
        let rows: Vec<drawing::CastRow> = self.groups().into_iter().filter_map(row).collect();
        let legend = self.legend(&[
            ("line", "bound: bytes over the link\u{2019}s rate"),
            ("bare", "bare exchange"),
        ]);
        let caption = "Dots are medians, lines reach to the p99. Left of the <b>bound</b> nothing can be: it is the object\u{2019}s bytes at the \
                       link\u{2019}s rate. The <b>bare exchange</b> of the same run is one datagram to all and an answer of each without any \
                       protocol: what a short reliable broadcast is to be compared with. The nearer a dot is to its mark, the less the protocol costs.";
        let lead = format!(
            "From the order to cast until the last of {} receivers has the object, every byte compared; {}.",
            self.casting.hosts.len().saturating_sub(1),
            match self.casting.rate_mbps.is_finite() {
                true => format!("links of {}\u{202f}Mb/s", number(self.casting.rate_mbps)),
                false => "links of unknown rate".to_owned(),
            }
        );
        let body = figure("Time until all have it", &legend, &drawing::times(&rows), caption)
            + &self.times();
        section("casting", "Broadcasts", &lead, &body)
    }

    /// Returns all times as a table.
    fn times(&self) -> String {
        let row = |run: &CastRun| {
            let of = |name| self.value(name, &run.labels);
            let dash = || "\u{2013}".to_owned();
            let shown = |name| of(name).map_or_else(dash, time);
            let percent = |name| {
                let percent = of(name).and_then(|share| ExtendedReal::new(100.0 * share));
                percent.map_or_else(dash, |percent| format!("{}\u{202f}%", number(percent)))
            };
            let bare = of("broadcast_bare_ratio").and_then(ExtendedReal::new);
            format!(
                "<tr><th scope=\"row\">{}</th>{}{}{}{}{}{}{}{}{}</tr>\n",
                self.name(label(run, MODE).unwrap_or_default()),
                cell("bytes", "n", &text(&length_shown(label(run, BYTES).unwrap_or_default()))),
                cell("lost", "n", &text(&percent_of(label(run, LOSS)))),
                cell("p50", "n", &shown("broadcast_seconds")),
                cell("p99", "n", &shown("broadcast_p99_seconds")),
                cell("bound", "n", &time(self.bound(run))),
                cell("of the line", "n", &percent("broadcast_goodput_fraction")),
                cell(
                    "of bare",
                    "n",
                    &bare.map_or_else(dash, |ratio| format!("{}\u{d7}", number(ratio)))
                ),
                cell("root\u{2019}s processor", "n", &shown("broadcast_root_cpu_seconds")),
                cell("sent again", "n", &percent("broadcast_repairs_fraction")),
            )
        };
        let body: String =
            self.groups().iter().flat_map(|(_, _, runs)| runs).map(|run| row(run)).collect();
        let columns = [
            ("Mode", ""),
            ("Object", "n"),
            ("Lost", "n"),
            ("p50", "n"),
            ("p99", "n"),
            ("Bound", "n"),
            ("Of the line", "n"),
            ("Of bare", "n"),
            ("Root\u{2019}s processor", "n"),
            ("Sent again", "n"),
        ];
        let caption = "<b>auto</b> is what a user gets. Of the line: goodput over the link\u{2019}s rate; the root\u{2019}s processor time is for one object; \
                       sent again: by whomever, of the symbols that all receivers need.";
        let table = table("cards", caption, &head(&columns), &body);
        format!(
            "<details><summary>The same as a table, with goodput and processor time</summary>\n{table}</details>\n"
        )
    }

    fn sequence(&self) -> String {
        let one = |(bytes, loss, sampled): &(&str, &str, Vec<SampledRun<'_>>)| {
            let bound = sampled.first().map_or(0.0, |(_, run, _)| 1e3 * self.bound(run));
            let caption = "";
            figure(
                &format!("{}, {}", length_shown(bytes), lost(loss)),
                "",
                &drawing::sequence(sampled, bound),
                caption,
            )
        };
        let with_samples = self.sampled_runs();
        let has_switch = with_samples
            .iter()
            .flat_map(|(_, _, sampled)| sampled)
            .any(|(_, _, samples)| !samples.switches.is_empty());
        let marks = [
            ("line", "bound: bytes over the link\u{2019}s rate"),
            ("switch", "another way was taken"),
        ];
        let legend = self.legend(marks.get(..1 + usize::from(has_switch)).unwrap_or_default());
        let body: String = with_samples.iter().map(one).collect();
        section(
            "sequence",
            "How symbols came in",
            "Percent of one object\u{2019}s symbols that each receiver had, over time: thin lines are receivers, the thick one is the median, the dashed \
             one the last to be whole. Straight lines that end at the bound are a link that never rested; a flat stretch is a stall, a gap between \
             thick and dashed a laggard, and a bend at a mark is what a change of the way cost.",
            &pairs(&legend, &body),
        )
    }

    fn progress(&self) -> String {
        let with_samples = self.sampled_runs();
        let Some(bytes) = with_samples.last().map(|(bytes, _, _)| *bytes) else {
            return String::new();
        };
        let one = |(_, loss, sampled): &(&str, &str, Vec<SampledRun<'_>>)| {
            let title = |what: &str, of: &str| format!("{what}{}, {}", text(of), lost(loss));
            let quarters = sampled.first().map(|(place, run, samples)| {
                let of =
                    format!("{} by {}", length_shown(bytes), label(run, MODE).unwrap_or_default());
                let names = self.casting.hosts.get(1..).unwrap_or_default();
                figure(
                    &title("", &of),
                    "",
                    &drawing::quarters(*place, names, samples),
                    "Marks: a quarter, half, three quarters; the end of a bar: all of it.",
                )
            });
            let eta = figure(
                &title("Foretold end: ", &length_shown(bytes)),
                "",
                &drawing::expected(sampled),
                "",
            );
            quarters.unwrap_or_default() + &eta
        };
        let body: String = with_samples.iter().filter(|(of, _, _)| *of == bytes).map(one).collect();
        section(
            "progress",
            "Receivers\u{2019} progress",
            "How even receivers are, and how soon one knows when all will be done: the time so far over the part that the slowest receiver has. A line that \
             is flat from the beginning on is an estimate to plan with; one that falls was pessimistic, one that climbs promised too much. The dashed \
             line of the same colour is when the last was whole.",
            &pairs(&self.legend(&[]), &body),
        )
    }

    fn causes(&self) -> String {
        let names = ["lost", "damaged", "early", "came twice"].map(str::to_owned);
        let groups = self.groups();
        // Messages of one symbol are looked after together, and say little about any.
        let receivers = self.casting.hosts.len().saturating_sub(1) as u64;
        let is_long = |run: &&&CastRun| run.symbols.needed > u64::from(run.objects) * receivers;
        let long = groups.iter().flat_map(|(_, _, runs)| runs).filter(is_long);
        let all: Vec<_> = long.map(|run| drawing::causes_of(run)).collect();
        let is_any_clean = all.iter().any(Option::is_none);
        let rows: Vec<_> = all.into_iter().flatten().collect();
        if rows.is_empty() {
            return match is_any_clean {
                false => String::new(),
                true => section(
                    "repairs",
                    "Why symbols left again",
                    "",
                    "<p>None did: nothing was lost, damaged or early.</p>\n",
                ),
            };
        }
        let caption = format!(
            "Percent of the symbols that all receivers need. <b>Lost</b> were dropped at a receiver, as the run was asked to or for want of room; <b>early</b> came \
             before it was known where they belong; what <b>came twice</b> was asked for although it was on its way, or served by two. Behind each bar: \
             what left again.{}",
            if is_any_clean { " Casts without any of this are left out." } else { "" }
        );
        let body = figure(
            "Symbols that were missed, and that came twice",
            &parts_legend(&names),
            &drawing::causes(&rows),
            &caption,
        );
        section(
            "repairs",
            "Why symbols left again",
            "A repair by multicast serves all who miss a symbol at once, so fewer leave again than were lost; more than were lost means that the protocol \
             asks too early, which takes room from what is new.",
            &body,
        )
    }

    fn ways(&self) -> String {
        // One for each mode: the longest object, with as little loss as there was.
        let mut shown: Vec<SampledRun<'_>> = Vec::new();
        for (_, _, sampled) in self.sampled_runs().iter().rev() {
            for samples in sampled {
                match shown.iter_mut().find(|(place, _, _)| *place == samples.0) {
                    Some(known) if known.1.bytes == samples.1.bytes => *known = *samples,
                    Some(_) => {}
                    None => shown.push(*samples),
                }
            }
        }
        shown.sort_by_key(|(place, _, _)| *place);
        let one = |(place, run, samples): &SampledRun<'_>| {
            let mode = label(run, MODE).unwrap_or_default();
            let way = match samples.switches.last() {
                Some((at, way)) => {
                    format!("{}, then {} after {}", run.way, way, time(at.get() / 1e3))
                }
                None => run.way.clone(),
            };
            let way = if way == mode { String::new() } else { format!("by {}, ", text(&way)) };
            let title = format!(
                "{}: {way}{}",
                self.name(mode),
                text(&length_shown(label(run, BYTES).unwrap_or_default()))
            );
            figure(&title, "", &drawing::way(*place, &self.casting.hosts, run, samples), "")
        };
        let body: String = shown.iter().map(one).collect();
        section(
            "ways",
            "The way taken",
            "From whom symbols really came: lines are as thick as the part that came along them, so repairs by neighbours show as thin ones. Below each \
             name is when it had the whole object: down a chain or tree each level is a little later, and a member far behind those next to it is the one to look at.",
            &pairs("", &body),
        )
    }

    fn links(&self) -> String {
        // The longest object that every mode carried, with as little loss as there was.
        let has_all = |runs: &[&CastRun]| runs.len() == self.modes.len();
        let groups = self.groups();
        let longest = groups
            .iter()
            .filter(|(_, _, runs)| has_all(runs))
            .map(|(bytes, _, _)| *bytes)
            .next_back();
        let Some((bytes, loss, runs)) = groups.iter().find(|(bytes, _, _)| Some(*bytes) == longest)
        else {
            return String::new();
        };
        let hosts = self.casting.hosts.len();
        let runs: Vec<&CastRun> =
            runs.iter().copied().filter(|run| run.links.len() == hosts).collect();
        if runs.is_empty() || hosts < 2 {
            return String::new();
        }
        let names = ["out of the root", "into receivers", "out of receivers", "into the root"]
            .map(str::to_owned);
        let drawing = drawing::links(&runs, hosts);
        let caption = "In objects: 1 is the object\u{2019}s bytes once over one link in one direction. <b>Unicast to all</b> is counted without headers and \
                       repairs, which is its best; the others are what went through the hosts\u{2019} interfaces, headers, reports and repairs included. Behind each \
                       bar: the busiest direction of any link, which no cast can be faster than.";
        let saved = drawing::saved(&runs, hosts);
        let body = figure("Bytes on all links", &parts_legend(&names), &drawing, caption)
            + &self.by_link(&runs);
        section(
            "links",
            "What links carried",
            &format!("{}, {}. {saved}", length_shown(bytes), lost(loss)),
            &body,
        )
    }

    /// Returns the bytes on each host's link.
    fn by_link(&self, runs: &[&CastRun]) -> String {
        let hosts = self.casting.hosts.len() as f64;
        let shown = |bytes: f64| number(ExtendedReal::or_infinite(bytes / 1e6));
        let row = |(host, name): (usize, &String)| {
            let one = |run: &&CastRun| {
                let [out, into] =
                    run.links[host].map(|bytes| bytes as f64 / f64::from(run.objects.max(1)));
                let mode = label(run, MODE).unwrap_or_default();
                let [out, into] = [out, into].map(shown);
                cell(&format!("{mode}, out"), "n", &out) + &cell(&format!("{mode}, in"), "n", &into)
            };
            let bytes = runs.first().map_or(0.0, |run| run.bytes as f64);
            let unicast = if host == 0 { [bytes * (hosts - 1.0), 0.0] } else { [0.0, bytes] };
            let [out, into] = unicast.map(shown);
            let unicast = cell("unicast, out", "n", &out) + &cell("unicast, in", "n", &into);
            format!(
                "<tr><th scope=\"row\">{}</th>{}{unicast}</tr>\n",
                text(name),
                runs.iter().map(one).collect::<String>()
            )
        };
        let body: String = self.casting.hosts.iter().enumerate().map(row).collect();
        let of_mode = |run: &&CastRun| {
            let name = self.name(label(run, MODE).unwrap_or_default());
            format!("<th colspan=\"2\" scope=\"colgroup\">{name}</th>")
        };
        let modes: String = runs.iter().map(of_mode).collect();
        let ways = "<th scope=\"col\" class=\"n\">out</th><th scope=\"col\" class=\"n\">in</th>"
            .repeat(runs.len() + 1);
        let head = format!(
            "<tr><th rowspan=\"2\" scope=\"col\">Link of</th>{modes}<th colspan=\"2\" scope=\"colgroup\">unicast to all</th></tr><tr>{ways}</tr>"
        );
        let caption =
            "Megabytes for one object on each host\u{2019}s link, from the host and to it.";
        format!(
            "<details><summary>Link by link</summary>\n{}</details>\n",
            table("cards", caption, &head, &body)
        )
    }
}

/// Returns a share as percent.
fn percent_of(share: Option<&str>) -> String {
    let share = share.and_then(|share| share.parse::<f64>().ok());
    share.map_or_else(|| "\u{2013}".to_owned(), |share| format!("{}\u{202f}%", tick(100.0 * share)))
}

#[cfg(test)]
mod tests {
    use super::super::super::BroadcastMechanism;
    use super::super::sample;
    use super::*;
    use crate::report::html::render;

    /// Returns the words of the page, without the material of scripts.
    fn words(report: &Report) -> String {
        let page = render(report, &[&BroadcastMechanism]);
        page[..page.find("id=\"material\"").expect("the material")].to_owned()
    }

    #[test]
    fn casting__has_every_section_with_a_sentence_that_says_how_to_read_it() {
        let page = words(&sample::casting());
        for (id, sentence) in [
            ("casting", "Left of the <b>bound</b> nothing can be"),
            ("sequence", "a flat stretch is a stall"),
            ("progress", "an estimate to plan with"),
            ("repairs", "more than were lost means that the protocol"),
            ("ways", "a member far behind those next to it is the one to look at"),
            ("links", "Unicast to all would put the object on links 14 times, 7 of them"),
        ] {
            let from = page
                .find(&format!("<section id=\"{id}\""))
                .unwrap_or_else(|| panic!("no section {id}"));
            let section = page[from..].split("</section>").next().unwrap_or_default();
            assert!(section.contains(sentence), "{id}: {section}");
        }
        assert!(page.contains("64 MiB, 1\u{202f}% lost") && page.contains("class=\"switch\""));
    }

    #[test]
    fn casting__short_objects_stand_next_to_the_bare_exchange_and_long_ones_next_to_the_bound() {
        let page = words(&sample::casting());
        let drawing = page
            .split("aria-label=\"Time until all")
            .nth(1)
            .and_then(|rest| rest.split("</svg>").next());
        let drawing = drawing.expect("the drawing of times");
        assert_eq!(
            (drawing.matches("class=\"bare\"").count(), drawing.matches("class=\"line\"").count()),
            (2, 2)
        );
        assert_eq!(
            drawing.matches("class=\"dot\"").count(),
            12,
            "three modes, two lengths, two losses"
        );
    }

    #[test]
    fn casting__of_a_run_that_saw_nothing_leaves_sections_out() {
        let mut report = sample::casting();
        let mut casting: BroadcastReport = report.part().expect("there are casts");
        for run in &mut casting.casts {
            (run.samples, run.links, run.symbols.needed) = (None, Vec::new(), 0);
        }
        report.set_part(&casting);
        let page = words(&report);
        let has = |id: &str| page.contains(&format!("<section id=\"{id}\""));
        assert!(
            has("casting")
                && !["sequence", "progress", "repairs", "ways", "links"].into_iter().any(has)
        );
        report.parts.clear();
        assert!(!words(&report).contains("id=\"casting\""));
    }
}
