//! Bars on a terminal: a line for each machine, drawn over and over.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ichor_engine::{Event, EventSink};
use ichor_plan::ClusterPlan;

use super::{
    Clock, Course, Reader,
    course::{Kind, Mood, Standing},
};
use crate::{
    render::{duration, text},
    terminal::Screen,
};

/// Ten times a second is as often as people see.
pub const REDRAW: Duration = Duration::from_millis(100);
/// Columns of a bar, and of a terminal that has room for it.
const BAR: u8 = 10;
const ROOM_FOR_BAR: usize = 60;
/// Most columns of a title and of a phase; longer ones are cut off.
const LONGEST_TITLE: usize = 24;
const LONGEST_PHASE: usize = 28;

/// Draws a run on a terminal.
#[derive(Debug)]
pub struct Bars {
    clock: Clock,
    picture: Mutex<Picture>,
}

#[derive(Debug)]
struct Picture {
    course: Course,
    screen: Screen,
    /// What is on the screen.
    shown: Vec<String>,
    drawn: Option<Duration>,
}

impl Bars {
    /// Draws nothing yet.
    pub fn new(plan: &ClusterPlan, clock: Clock, screen: Screen) -> Self {
        let picture = Picture { course: Course::new(plan), screen, shown: Vec::new(), drawn: None };
        Self { clock, picture: Mutex::new(picture) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Picture, Duration) -> T) -> T {
        act(&mut self.picture.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }
}

impl EventSink for Bars {
    fn emit(&self, event: Event) {
        self.with(|picture, now| {
            picture.course.take(&event, now);
            // The pulse draws; if it fell behind, events do.
            if picture.drawn.is_none_or(|drawn| now.saturating_sub(drawn) > 2 * REDRAW) {
                picture.draw(now);
            }
        });
    }
}

impl Reader for Bars {
    fn tick(&self) {
        self.with(Picture::draw);
    }

    fn say(&self, words: &str) {
        self.with(|picture, now| {
            let columns = usize::from(picture.screen.size().0);
            let lines: Vec<String> =
                text::wrap(words, columns.max(2) - 1).lines().map(str::to_owned).collect();
            picture.screen.draw(picture.shown.len(), &lines);
            picture.shown.clear();
            picture.draw(now);
        });
    }

    fn lasted(&self) -> Vec<(String, Duration)> {
        self.with(|picture, now| picture.course.lasted(now))
    }
}

impl Picture {
    fn draw(&mut self, now: Duration) {
        let (columns, rows) = self.screen.size();
        let frame = frame(&self.course, now, columns.into(), rows.into());
        self.drawn = Some(now);
        if frame != self.shown {
            self.screen.draw(self.shown.len(), &frame);
            self.shown = frame;
        }
    }
}

/// Returns what is to be seen. It is never higher than the screen, or the terminal would scroll it away.
fn frame(course: &Course, now: Duration, columns: usize, rows: usize) -> Vec<String> {
    let standings = course.standings(now);
    let (shown, hidden) = choose(&standings, rows.saturating_sub(2).max(1));
    // The last column stays free: some terminals wrap when it is written.
    let columns = columns.max(2) - 1;
    let mut lines = lines(&shown, columns);
    lines.extend(hidden.map(|words| text::fit(&words, columns)));
    lines.push(text::fit(&summary(course, &standings, now), columns));
    lines
}

/// Chooses the lines that there is room for. Where not all fit, those that are done or have not begun go first.
fn choose(standings: &[Standing], room: usize) -> (Vec<&Standing>, Option<String>) {
    if standings.len() <= room {
        return (standings.iter().collect(), None);
    }
    let at_work = |one: &&Standing| matches!(one.mood, Mood::Failed | Mood::Working);
    let mut busy: Vec<&Standing> = standings.iter().filter(at_work).collect();
    busy.sort_by_key(|one| one.mood != Mood::Failed);
    let left_out = busy.len().saturating_sub(room.saturating_sub(1));
    busy.truncate(room.saturating_sub(1));
    let of = |mood| standings.iter().filter(|one| one.mood == mood).count();
    let words = [
        (left_out > 0).then(|| format!("{left_out} more at work")),
        Some(format!("{} waiting", of(Mood::Waiting))),
        Some(format!("{} done", of(Mood::Finished))),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (busy, Some(format!("and {}", words.join(", "))))
}

fn lines(shown: &[&Standing], columns: usize) -> Vec<String> {
    let widest = |words: fn(&Standing) -> &str, most: usize| {
        shown.iter().map(|one| words(one).chars().count()).max().unwrap_or(0).min(most)
    };
    let title = widest(|one| &one.title, LONGEST_TITLE);
    let phase = widest(|one| &one.phase, LONGEST_PHASE);
    shown.iter().map(|one| line(one, title, phase, columns)).collect()
}

fn line(one: &Standing, title: usize, phase: usize, columns: usize) -> String {
    let bar = if columns >= ROOM_FOR_BAR { format!("{} ", bar(one.fraction)) } else { String::new() };
    let elapsed = one.elapsed.map(duration::clock).unwrap_or_default();
    let head = format!("{} {bar}", text::pad(&one.title, title));
    let tail = format!(" {elapsed:>7}  {}", one.note);
    let phase = text::pad(&one.phase, phase);
    let room = columns.saturating_sub(head.chars().count());
    let phase = text::fit(&phase, room);
    let tail = text::fit(&tail, room.saturating_sub(phase.chars().count()));
    let phase = match one.mood {
        Mood::Failed => text::bad(&phase),
        Mood::Finished => text::good(&phase),
        Mood::Working => text::bold(&phase),
        Mood::Waiting => phase,
    };
    format!("{}{phase}{tail}", text::fit(&head, columns)).trim_end().to_owned()
}

fn bar(fraction: f64) -> String {
    let full = (1..=BAR).filter(|column| fraction * f64::from(BAR) >= f64::from(*column)).count();
    format!("[{}{}]", "#".repeat(full), "-".repeat(usize::from(BAR) - full))
}

fn summary(course: &Course, standings: &[Standing], now: Duration) -> String {
    let count = course.count();
    let machines: Vec<&Standing> = standings.iter().filter(|one| one.kind == Kind::Machine).collect();
    let finished: Vec<&&Standing> = machines.iter().filter(|one| one.mood == Mood::Finished).collect();
    let word = finished.first().map_or("done", |one| one.phase.as_str());
    let mut parts = Vec::new();
    if !machines.is_empty() {
        parts.push(format!("{} of {} {word}", finished.len(), text::count(machines.len(), "machine")));
    }
    parts.push(format!("{} of {}", count.done, text::count(count.all, "step")));
    if count.failed > 0 {
        parts.push(format!("{} failed", count.failed));
    }
    parts.push(duration::clock(now));
    let left = course.left(now);
    if left > Duration::ZERO {
        parts.push(format!("about {} left", duration::rough(left)));
    }
    parts.extend(course.looking(now).map(|(why, _)| why.to_owned()));
    if course.stopping {
        parts.push("stopping".into());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{super::recording::*, *};
    use crate::render::fixture;

    fn picture(upto: u64, size: (u16, u16)) -> String {
        let course = course_at(&fixture::live(), upto);
        let lines = frame(&course, Duration::from_secs(upto), size.0.into(), size.1.into());
        for line in &lines {
            let plain = anstream::adapter::strip_str(line).to_string();
            assert!(plain.chars().count() < usize::from(size.0), "{plain}");
        }
        assert!(lines.len() < usize::from(size.1));
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn each_machine_has_a_line_with_its_phase() {
        insta::assert_snapshot!(picture(1, (80, 24)), @r"
        cluster  [----------] making the pool       1s
        images   [----------] downloading           1s
        cp-1     [----------] waits for images
        cp-2     [----------] waits for images
        cp-3     [----------] waits for images
        worker-1 [----------] waits for images
        worker-2 [----------] waits for images
        0 of 5 machines done, 0 of 34 steps, 1s, about 4m left
        ");
        insta::assert_snapshot!(picture(20, (80, 24)), @r"
        cluster  [----------] waits for cp-1       20s
        images   [######----] downloading          20s  it is not there yet
        cp-1     [----------] waits for images
        cp-2     [----------] waits for images
        cp-3     [----------] waits for images
        worker-1 [----------] waits for images
        worker-2 [----------] waits for images
        0 of 5 machines done, 1 of 34 steps, 20s, about 4m 30s left
        ");
        insta::assert_snapshot!(picture(100, (140, 24)), @r"
        cluster  [----------] waits for cp-1  1m 40s
        images   [##########] done               37s
        cp-1     [###-------] configuring     1m 02s  it is not there yet
        cp-2     [###-------] configuring     1m 02s  it is not there yet
        cp-3     [###-------] configuring     1m 02s  it is not there yet
        worker-1 [###-------] configuring     1m 02s  it is not there yet
        worker-2 [###-------] configuring     1m 02s  it is not there yet
        0 of 5 machines done, 19 of 34 steps, 1m 40s, about 3m 30s left
        ");
    }

    #[test]
    fn at_the_end_all_machines_are_ready() {
        insta::assert_snapshot!(picture(1000, (80, 24)), @r"
        cluster  [##########] done   3m 51s
        images   [##########] done      37s
        cp-1     [##########] ready  4m 03s
        cp-2     [##########] ready  4m 03s
        cp-3     [##########] ready  4m 03s
        worker-1 [##########] ready  4m 03s
        worker-2 [##########] ready  4m 03s
        5 of 5 machines ready, 34 of 34 steps, 16m 40s
        ");
    }

    #[test]
    fn a_low_terminal_shows_those_that_are_at_work() {
        insta::assert_snapshot!(picture(20, (80, 6)), @r"
        images [######----] downloading     20s  it is not there yet
        and 6 waiting, 0 done
        0 of 5 machines done, 1 of 34 steps, 20s, about 4m 30s left
        ");
        insta::assert_snapshot!(picture(100, (80, 5)), @r"
        cp-1 [###-------] configuring  1m 02s  it is not there yet
        cp-2 [###-------] configuring  1m 02s  it is not there yet
        and 3 more at work, 1 waiting, 1 done
        0 of 5 machines done, 19 of 34 steps, 1m 40s, about 3m 30s left
        ");
    }

    #[test]
    fn a_narrow_terminal_does_without_bars() {
        insta::assert_snapshot!(picture(20, (40, 24)), @r"
        cluster  waits for cp-1       20s
        images   downloading          20s  it …
        cp-1     waits for images
        cp-2     waits for images
        cp-3     waits for images
        worker-1 waits for images
        worker-2 waits for images
        0 of 5 machines done, 1 of 34 steps, 2…
        ");
        picture(20, (8, 3));
        picture(100, (20, 4));
    }

    #[test]
    fn what_failed_is_said_where_it_failed() {
        let desired = fixture::live();
        let mut course = course_at(&desired, 20);
        for event in failure() {
            course.take(&event, Duration::from_secs(31));
        }
        let lines = frame(&course, Duration::from_secs(40), 80, 24);
        insta::assert_snapshot!(anstream::adapter::strip_str(&lines.join("\n")).to_string(), @r"
        cluster  [----------] waits for cp-1       40s
        images   [#########-] downloading          40s  it is not there yet
        cp-1     [----------] failed creating       1s  Proxmox answered 403: Permissi…
        cp-2     [----------] refused starting      0s  VM 2001 is not ours: it has an…
        cp-3     [----------] waits for images
        worker-1 [----------] waits for images
        worker-2 [----------] waits for images
        0 of 5 machines done, 1 of 34 steps, 2 failed, 40s, about 4s left, stopping
        ");
    }

    #[test]
    fn hundreds_of_machines_fit_on_a_screen() {
        let desired = fixture::crowd(300);
        let course = course_at(&desired, 60);
        let lines = frame(&course, Duration::from_mins(1), 100, 12);
        assert!(lines.len() < 12);
        insta::assert_snapshot!(anstream::adapter::strip_str(&lines.join("\n")).to_string(), @r"
        cp-1     [#---------] waiting for Talos     22s  it is not there yet
        cp-2     [#---------] waiting for Talos     22s  it is not there yet
        cp-3     [#---------] waiting for Talos     22s  it is not there yet
        worker-1 [#---------] waiting for Talos     22s  it is not there yet
        worker-2 [#---------] waiting for Talos     22s  it is not there yet
        worker-3 [#---------] waiting for Talos     22s  it is not there yet
        worker-4 [#---------] waiting for Talos     22s  it is not there yet
        worker-5 [#---------] waiting for Talos     22s  it is not there yet
        worker-6 [#---------] waiting for Talos     22s  it is not there yet
        and 295 more at work, 1 waiting, 1 done
        0 of 304 machines done, 612 of 1529 steps, 1m 00s, about 4m left
        ");
    }

    #[test]
    fn a_frame_is_drawn_over_the_one_before_and_only_when_it_differs() {
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let plan = fixture::plan_from_nothing(&fixture::live());
        let bars = Bars::new(&plan, clock, Screen::fixed(pipe, (80, 24), false));
        bars.tick();
        let first = written.take();
        let height = first.matches("\x1b[2K").count();
        assert!(first.starts_with("\r\x1b[2K") && first.ends_with("\x1b[J"), "{first:?}");
        assert!(!first.contains("\x1b[1m"), "colours that nobody wants");
        bars.tick();
        assert_eq!(written.take(), "", "nothing has changed");
        time.set(Duration::from_secs(2));
        bars.emit(events(&fixture::live())[1].1.clone());
        assert!(written.take().starts_with(&format!("\r\x1b[{height}A")));
    }

    #[test]
    fn words_in_between_stand_above_the_bars() {
        let (pipe, written) = memory();
        let plan = fixture::plan_from_nothing(&fixture::live());
        let bars = Bars::new(&plan, hand_moved().0, Screen::fixed(pipe, (80, 24), false));
        bars.tick();
        let height = written.take().matches("\x1b[2K").count();
        bars.say("what is in flight is finished first");
        let said = written.take();
        assert!(
            said.starts_with(&format!(
                "\r\x1b[{height}A\x1b[2Kwhat is in flight is finished first\n\x1b[J\r\x1b[2K"
            )),
            "{said:?}"
        );
    }
}
