//! Why a load, a sink or a hold gave no result.

use std::io;

use stentor_lab::LabError;
use stentor_measure::MeasureError;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl LoadError {
    /// Bad options, or something that this machine does not have; with the remedy.
    pub fn refused(why: impl Into<String>) -> LoadError {
        LoadError::Measure(MeasureError::Refused(why.into()))
    }
}

impl From<LoadError> for MeasureError {
    fn from(error: LoadError) -> MeasureError {
        match error {
            LoadError::Measure(error) => error,
            other => MeasureError::Refused(other.to_string()),
        }
    }
}
