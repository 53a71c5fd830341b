"""Results as files, and their import into MLflow. The only user of mlflow."""
