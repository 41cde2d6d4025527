//! Looking into a lab that runs, and meddling with it, over a socket beside its state file. Only the owner of
//! the file can open it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ichor_sim::{
    Lab,
    faults::{Calls, Fault, FaultPlan, Kind, When},
    incident::{Impossible, Incident},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};

use crate::Hall;

/// Most bytes of a wish: a fault plan is short.
const MAX_WISH: u64 = 8 * 1024 * 1024;

/// What somebody wants of a lab that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// To see its state.
    State,
    /// To see the fault plan.
    Faults,
    /// To set the fault plan.
    SetFaults(FaultPlan),
    /// That something befalls it.
    Befall(Incident, Moment),
    /// To begin again, as it was set up.
    Reset,
    /// To forget the calls so far, and to measure anew how long what follows has to take.
    ForgetCalls,
}

/// When something befalls a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Now.
    Now,
    /// After so many milliseconds of the lab's time.
    After(u64),
    /// Before a call has its effect: which calls, and which of them.
    Call(Calls, u32),
}

/// Returns the socket of the lab with a state file.
pub fn socket_of(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".sock");
    name.into()
}

/// Opens the socket of the lab with a state file.
pub async fn open(state: &Path) -> io::Result<UnixListener> {
    let path = socket_of(state);
    // A socket that a killed lab left behind answers to nobody.
    if UnixStream::connect(&path).await.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    let listener = UnixListener::bind(&path)?;
    close_to_others(&path)?;
    Ok(listener)
}

/// Fulfils wishes. Never returns.
pub async fn listen(hall: Arc<Hall>, listener: UnixListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let hall = Arc::clone(&hall);
        tokio::spawn(async move {
            // Whoever asks and goes away does not wait for the answer.
            let _ = attend(&hall, stream).await;
        });
    }
}

fn close_to_others(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

async fn attend(hall: &Hall, stream: UnixStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(MAX_WISH).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(wish) => hall.visit(|lab| fulfil(lab, wish))?,
        Err(error) => Err(vec![error.to_string()]),
    };
    let mut answer = serde_json::to_vec(&answer)?;
    answer.push(b'\n');
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

/// What became of a wish: the answer, or all reasons why it is not fulfilled.
pub type Answer = Result<Value, Vec<String>>;

/// Fulfils a wish.
pub fn fulfil(lab: &mut Lab, wish: Wish) -> io::Result<Answer> {
    Ok(match wish {
        Wish::State => {
            let mut state = serde_json::to_value(&*lab)?;
            state["lower_bound"] = serde_json::to_value(lab.ground.bound.lower())?;
            Ok(state)
        }
        Wish::Faults => Ok(serde_json::to_value(&lab.ground.faults)?),
        Wish::SetFaults(plan) => set_faults(lab, plan),
        Wish::Befall(incident, moment) => befall(lab, incident, moment),
        Wish::ForgetCalls => {
            lab.forget_calls();
            Ok(Value::Null)
        }
        Wish::Reset if lab.begin_again() => Ok(Value::Null),
        Wish::Reset => Err(vec!["nobody wrote down how the lab began".to_owned()]),
    })
}

/// Sets the fault plan, if it can be followed.
fn set_faults(lab: &mut Lab, plan: FaultPlan) -> Answer {
    let mut mistakes = plan.mistakes();
    let absent = plan.incidents().filter_map(|(number, incident)| {
        let why = lab.has_place_of(incident).err()?;
        Some(format!("fault {number}: {why}"))
    });
    mistakes.extend(absent);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    lab.ground.faults = plan;
    Ok(Value::Null)
}

/// Lets something befall a lab, and says what stands in the way if it cannot.
fn befall(lab: &mut Lab, incident: Incident, moment: Moment) -> Answer {
    let told = |why: Impossible| vec![why.to_string()];
    match moment {
        Moment::Now => lab.befall(&incident).map_err(told)?,
        Moment::After(millis) => {
            lab.has_place_of(&incident).and(lab.has_vm_of(&incident)).map_err(told)?;
            let at = lab.ground.now + Duration::from_millis(millis);
            lab.befall_at(at, incident);
        }
        Moment::Call(on, occurrence) => {
            lab.has_place_of(&incident).map_err(told)?;
            let fault = Kind::Befall { event: incident, when: When::Before };
            lab.ground.faults.0.push(Fault { on, occurrence, fault, seen: 0 });
        }
    }
    Ok(Value::Null)
}

/// Asks a lab that runs; nothing: there is none.
pub async fn ask(state: &Path, wish: &Wish) -> io::Result<Option<Answer>> {
    let Ok(mut stream) = UnixStream::connect(socket_of(state)).await else { return Ok(None) };
    let mut line = serde_json::to_vec(wish)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(Some(serde_json::from_slice(&answer)?))
}
