package otelonceq

import (
	"embed"
	"io/fs"
)

//go:embed dashboards/onceq.json dashboards/rules.yaml
var files embed.FS

// Files are a dashboard for Grafana 10 and later, onceq.json, and recordings and alerts for
// Prometheus, rules.yaml. They ask for the metrics of this package by the names that the Prometheus
// exporter makes of them.
func Files() fs.FS {
	sub, err := fs.Sub(files, "dashboards")
	if err != nil {
		return files // cannot be: the name is valid
	}
	return sub
}
