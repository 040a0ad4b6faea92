package main

var databases = []mutant{}
